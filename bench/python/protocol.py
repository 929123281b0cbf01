"""The protocol of the contestants in Python.

It reads requests from stdin, one per line with tabs between the words:

    TASK N FILE [ARGUMENT...]

and answers each with the nanoseconds of all N runs together, without what the
task needs once. With N = 0 only that is done. Freeing the result is part of a
run if it is a table, not if it is data.
"""

import sys
import time


def serve(tasks):
    key, run = None, None
    for line in sys.stdin:
        task, count, *args = line.rstrip("\n").split("\t")
        try:
            if key != (task, args):
                key, run = (task, args), tasks[task](*args)
            total = 0
            for _ in range(int(count)):
                start = time.perf_counter_ns()
                result = run()
                total += time.perf_counter_ns() - start
                del result
            print(total, flush=True)
        except Exception as err:
            print(f"error: {err!r}".replace("\n", " "), flush=True)
