"""The Python contestant: does a task n times and says how long that took.

It reads requests from stdin, one per line with tabs between the words:

    TASK N FILE [ARGUMENT...]

and answers each with the nanoseconds of all N runs together, without what the
task needs once. With N = 0 only that is done. Freeing the result is part of a
run if it is a table, not if it is data.
"""

import os
import sys
import time

import ml_dtypes  # noqa: F401 - teaches numpy the dtype bfloat16
from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def parse(file):
    def run():
        safe_open(file, "numpy")  # and free it

    return run


def open_tensor(file, tensor):
    def run():
        with safe_open(file, "numpy") as f:
            return f.get_tensor(tensor).flat[0]

    return run


def load(file):
    return lambda: load_file(file)


def shard(file, tensor, start, stop):
    f = safe_open(file, "numpy")
    return lambda: f.get_slice(tensor)[:, int(start) : int(stop)]


def write(file, target):
    tensors = load_file(file)
    return lambda: save_file(tensors, target)


def write_fsync(file, target):
    save = write(file, target)

    def run():
        save()
        for name in (target, os.path.dirname(target)):
            fd = os.open(name, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)

    return run


TASKS = {
    "parse": parse,
    "open": open_tensor,
    "load": load,
    "shard": shard,
    "write": write,
    "write-fsync": write_fsync,
}


def main():
    key, run = None, None
    for line in sys.stdin:
        task, count, *args = line.rstrip("\n").split("\t")
        try:
            if key != (task, args):
                key, run = (task, args), TASKS[task](*args)
            total = 0
            for _ in range(int(count)):
                start = time.perf_counter_ns()
                result = run()
                total += time.perf_counter_ns() - start
                del result
            print(total, flush=True)
        except Exception as err:
            print(f"error: {err!r}".replace("\n", " "), flush=True)


main()
