"""The Python contestant: does a task n times and says how long that took."""

import os

import ml_dtypes  # noqa: F401 - teaches numpy the dtype bfloat16
import numpy as np
import ztensor
from protocol import serve
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


def parse_ztensor(file):
    def run():
        ztensor.index(file)  # reads the header without a mapping, and frees it

    return run


def open_ztensor(file, tensor):
    def run():
        with ztensor.open(file) as f:
            return memoryview(f[tensor])[0]

    return run


def load(file):
    return lambda: load_file(file)


def load_ztensor(file):
    def run():
        with ztensor.open(file) as f:
            return {name: t.tobytes() for name, t in f.items()}

    return run


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


def transpose(dtype, side):
    src = np.ones((int(side), int(side)), dtype)
    dst = np.empty_like(src)
    return lambda: np.copyto(dst, src.T)


TASKS = {
    "transpose": transpose,
    "parse": parse,
    "parse-ztensor": parse_ztensor,
    "open": open_tensor,
    "open-ztensor": open_ztensor,
    "load": load,
    "load-ztensor": load_ztensor,
    "shard": shard,
    "write": write,
    "write-fsync": write_fsync,
}

serve(TASKS)
