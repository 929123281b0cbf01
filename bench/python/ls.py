"""Prints the names, dtypes and shapes of the tensors of a file."""

import sys

from safetensors import safe_open

with safe_open(sys.argv[1], framework="np") as f:
    for name in f.keys():
        part = f.get_slice(name)
        print(name, part.get_dtype(), part.get_shape())
