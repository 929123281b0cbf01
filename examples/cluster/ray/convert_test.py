"""Kills a machine of a Ray cluster in the middle of a part, and compares the files with
those of one process.

    SAFETENSORS=/path/of/safetensors python convert_test.py
"""
import filecmp
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from ray.cluster_utils import Cluster

DRIVER = pathlib.Path(__file__).with_name("convert.py")
PLAN = ".safetensors-plan.json"
BINARY = os.environ["SAFETENSORS"]
MACHINES, PARTS, TENSORS, ELEMENTS = 3, 12, 96, 1 << 20
FLAGS = ["--max-shard-size", "4MB", "--quiet", "--dtype"]
DEADLINE = 600  # seconds, where nothing of it should take 30


def processes():
    """Yields the id, the parent and the command line of each process."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if stat[0] != "Z":
            yield int(folder.name), int(stat[1]), line


def below(pid):
    """Returns the processes that descend from one, and their command lines."""
    found, everyone = {pid: []}, list(processes())
    while more := [p for p in everyone if p[1] in found and p[0] not in found]:
        found |= {pid: line for pid, _, line in more}
    return found


def send(pid, number):
    """Sends a signal to a process, unless it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stopped(pid):
    """Stops a process. Returns False if it has ended before."""
    send(pid, signal.SIGSTOP)
    while True:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return False
        if state in "TtZX":
            return state in "Tt"
        time.sleep(0.001)


class ConvertTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.parts, self.log = self.folder / "parts", self.folder / "log"
        self.source = self.folder / "source.safetensors"
        self.write_source()
        # What Ray starts logs its parts, and can be found by its environment.
        self.binary = self.folder / "safetensors"
        self.binary.write_text(f'#!/bin/sh\necho "$@" >>{self.log}\nexec {BINARY} "$@"\n')
        self.binary.chmod(0o755)
        self.mark = f"SAFETENSORS_RAY_TEST={self.folder}"
        os.environ.update([self.mark.split("=")], RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=str(self.folder))
        self.addCleanup(self.nothing_is_left)
        self.cluster = Cluster()
        self.addCleanup(self.cluster.shutdown)
        self.add_machine(0, include_dashboard=False)
        self.machines = [self.add_machine(1) for _ in range(MACHINES)]
        self.cluster.wait_for_nodes(timeout=DEADLINE)

    def add_machine(self, processors, **arguments):
        """Adds a raylet on the loopback interface. Ray takes 127.0.0.1 for another address."""
        return self.cluster.add_node(wait=False, num_cpus=processors, node_ip_address="127.0.0.2", object_store_memory=80 << 20, **arguments)

    def write_source(self):
        size = 4 * ELEMENTS
        header = json.dumps({f"layers.{i}.weight": {"dtype": "F32", "shape": [ELEMENTS], "data_offsets": [i * size, (i + 1) * size]} for i in range(TENSORS)})
        header += " " * (-len(header) % 8)
        with self.source.open("wb") as f:
            f.write(len(header).to_bytes(8, "little") + header.encode())
            for _ in range(TENSORS):
                f.write(os.urandom(size))

    def nothing_is_left(self):
        def left():
            for pid, _, line in processes():
                try:
                    if self.mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        yield pid, line
                except OSError:
                    pass

        deadline = time.monotonic() + DEADLINE
        while lasting := list(left()):
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        else:
            return
        for pid, _ in lasting:
            send(pid, signal.SIGKILL)
        self.fail(f"processes that have not ended: {lasting}")

    def start(self, dtype):
        command = [sys.executable, DRIVER, "--binary", self.binary, PARTS, self.source, self.parts, *FLAGS, dtype]
        environment = {**os.environ, "RAY_ADDRESS": self.cluster.address}
        return subprocess.Popen([str(a) for a in command], env=environment, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)

    def drive(self, dtype):
        """Runs the driver. Returns its exit code, what it printed, and the parts that were started."""
        self.log.unlink(missing_ok=True)
        driver = self.start(dtype)
        out, _ = driver.communicate(timeout=DEADLINE)
        return driver.returncode, out, self.started()

    def started(self):
        return [line.split()[-1] for line in self.log.read_text().splitlines()]

    def kill_machine(self):
        """Waits for a shard, kills a machine that runs a part, and returns the part."""
        deadline = time.monotonic() + DEADLINE
        while time.monotonic() < deadline:
            time.sleep(0.01)
            if not any(self.parts.glob("*.safetensors")):
                continue
            for machine in self.machines:
                raylet = machine.all_processes["raylet"][0].process.pid
                for pid, line in below(raylet).items():
                    if "--part" not in line or not stopped(pid):  # so that it is still running when the machine dies
                        continue
                    for pid in below(raylet):
                        send(pid, signal.SIGKILL)
                    return line[-1]
        self.fail("no part was running after the first shard")

    def same_files(self):
        one, parts = self.folder / "one", self.parts
        names = sorted(p.name for p in one.iterdir())
        self.assertGreater(len(names), PARTS)
        self.assertEqual([PLAN, *names], sorted(p.name for p in parts.iterdir()))
        _, different, broken = filecmp.cmpfiles(one, parts, names, shallow=False)
        self.assertEqual(([], []), (different, broken))

    def test_machine_dies(self):
        subprocess.run([BINARY, "cp", self.source, self.folder / "one", *FLAGS, "bf16"], check=True)
        driver = self.start("bf16")
        killed = self.kill_machine()
        out, _ = driver.communicate(timeout=DEADLINE)
        self.assertEqual(0, driver.returncode, out)
        self.assertIn(killed, (started := self.started()))
        self.assertGreater(started.count(killed), 1, "the part of the machine that died did not start again")
        self.assertEqual(PARTS, len(set(started)))
        self.same_files()

        written = {p: p.stat().st_mtime_ns for p in self.parts.iterdir()}
        code, out, started = self.drive("bf16")
        self.assertEqual(0, code, out)
        self.assertEqual(written, {p: p.stat().st_mtime_ns for p in self.parts.iterdir()})

        code, out, started = self.drive("f16")
        self.assertNotEqual(0, code, "another plan")
        self.assertEqual(len(started), len(set(started)), out)  # no part was tried again
        self.same_files()


if __name__ == "__main__":
    unittest.main()
