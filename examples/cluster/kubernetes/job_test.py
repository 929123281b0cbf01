"""Checks job.yaml as a server of Kubernetes would, and runs its command for each index.

    SAFETENSORS=/path/of/safetensors python job_test.py
"""
import copy
import filecmp
import os
import pathlib
import subprocess
import tempfile
import unittest

import jsonschema
import kubernetes_validate
import yaml

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parents[2] / "testdata" / "model.safetensors"
BINARY = pathlib.Path(os.environ["SAFETENSORS"])
FINAL = [2, 3]  # the exit codes that another try cannot change, see doc/cluster.md
VERSIONS = ["1.33", "1.35", "1.37"]  # 1.33 is the first with backoffLimitPerIndex as a stable field


def job():
    return yaml.safe_load((HERE / "job.yaml").read_text())


def check(job):
    """Validates a job: by the schema, which knows no enumerations, then by the rules of a server."""
    for version in VERSIONS:
        kubernetes_validate.validate(job, version, strict=True)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    containers = [c["name"] for c in pod["containers"]]
    assert spec["completionMode"] == "Indexed", "the command needs an index"
    assert 0 < spec["parallelism"] <= spec["completions"], "parts run concurrently"
    assert spec["maxFailedIndexes"] <= spec["completions"] and spec["backoffLimitPerIndex"] >= 0
    assert pod["restartPolicy"] == "Never", "a podFailurePolicy needs it"
    for rule in spec["podFailurePolicy"]["rules"]:
        assert rule["action"] in ("FailJob", "FailIndex", "Ignore", "Count"), rule
        assert ("onExitCodes" in rule) != ("onPodConditions" in rule), rule
        if codes := rule.get("onExitCodes"):
            assert codes["operator"] in ("In", "NotIn"), rule
            assert codes["containerName"] in containers, rule
            assert codes["values"] == sorted(set(codes["values"])) and 0 not in codes["values"], rule
        for condition in rule.get("onPodConditions", []):
            assert condition["status"] in ("True", "False", "Unknown"), rule


class JobTest(unittest.TestCase):
    def test_server_accepts(self):
        check(job())

    def test_check_refuses(self):
        """The check would notice."""
        def change(*path, value):
            broken = copy.deepcopy(job())
            inner = broken
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            return broken

        rules = ("spec", "podFailurePolicy", "rules")
        for broken in (
            change("spec", "paralelism", value=8),
            change("spec", "completions", value="8"),
            change("spec", "template", "spec", "containers", 0, "env", 0, "value", value=8),
            change("spec", "template", "spec", "containers", 0, "resources", "limits", value={"memory": [4]}),
            change("spec", "completionMode", value="NonIndexed"),
            change("spec", "template", "spec", "restartPolicy", value="OnFailure"),
            change(*rules, 1, "action", value="FailPod"),
            change(*rules, 1, "onExitCodes", "containerName", value="main"),
            change(*rules, 1, "onExitCodes", "values", value=[3, 2]),
        ):
            with self.assertRaises((AssertionError, jsonschema.ValidationError)):
                check(broken)

    def test_final_codes(self):
        values = [rule["onExitCodes"]["values"] for rule in job()["spec"]["podFailurePolicy"]["rules"] if rule["action"] == "FailIndex"]
        self.assertEqual([FINAL], values)

    def test_command(self):
        container = job()["spec"]["template"]["spec"]["containers"][0]
        environment = {e["name"]: e["value"] for e in container["env"]}
        completions = job()["spec"]["completions"]
        self.assertEqual(str(completions), environment["PARTS"])
        with tempfile.TemporaryDirectory() as folder:
            one, parts = pathlib.Path(folder, "one"), pathlib.Path(folder, "parts")
            flags = ["--dtype", "f32", "--max-shard-size", "8KB", "--quiet"]
            subprocess.run([BINARY, "cp", MODEL, one, *flags], check=True)
            for index in reversed(range(completions)):
                self.assertFalse((parts / "model.safetensors.index.json").exists())
                subprocess.run(
                    [*container["command"], MODEL, parts, *flags], check=True,
                    env={**environment, "JOB_COMPLETION_INDEX": str(index), "PATH": f"{BINARY.parent}:/usr/bin:/bin"})
            names = sorted(p.name for p in one.iterdir())
            self.assertGreaterEqual(len(names), completions)
            self.assertEqual(names, sorted(p.name for p in parts.glob("model*")))
            self.assertEqual((names, [], []), filecmp.cmpfiles(one, parts, names, shallow=False))


if __name__ == "__main__":
    unittest.main()
