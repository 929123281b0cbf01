"""Runs `safetensors cp` in N parts, as tasks of a Ray cluster.

    ray job submit --working-dir . -- python convert.py [--binary PATH] N SRC... DST --max-shard-size SIZE [FLAG...]

All machines have the same binary and see SRC and DST. After a failure, run it again.
"""
import argparse
import subprocess

import ray

FINAL = (2, 3)  # exit codes that another try cannot change, see doc/cluster.md


class Again(Exception):
    """A part failed and may succeed when it is run again."""


# The retries are for parts that exit with 1 and for machines that die. Ray would fill one
# machine before it takes the next.
@ray.remote(num_cpus=1, scheduling_strategy="SPREAD", max_retries=5, retry_exceptions=[Again])
def part(command):
    code = subprocess.run(command).returncode
    if code in FINAL:
        raise RuntimeError(f"{' '.join(command)}: exit code {code}")
    if code != 0:
        raise Again(f"{' '.join(command)}: exit code {code}")


parser = argparse.ArgumentParser()
parser.add_argument("--binary", default="safetensors")
parser.add_argument("n", type=int)
parser.add_argument("cp", nargs=argparse.REMAINDER)
args = parser.parse_args()
ray.init()
parts = [part.remote([args.binary, "cp", *args.cp, "--part", f"{k}/{args.n}"]) for k in range(1, args.n + 1)]
while parts:
    done, parts = ray.wait(parts)
    ray.get(done)  # raises the error of a part that failed for good
