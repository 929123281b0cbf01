"""Writes .bt files with the installed bintensors, and what Open must return of them.

    python generate.py FOLDER [SEED]
    python generate.py --check FILE.bt FILE.safetensors

Each FILE.bt has a FILE.safetensors with the same tensors. With --check it compares
what bintensors and safetensors read, and the file with what bintensors writes. Needs
testdata/requirements-bintensors-0.0.txt or -0.2.txt of the repository; the files in
testdata/0.0 and testdata/0.2 are of these versions.
"""

import json
import math
import os
import random
import struct
import sys

import bintensors

SIZES = {"bool": 1, "int8": 1, "uint8": 1, "float8_e5m2": 1, "float8_e4m3fn": 1, "int16": 2, "uint16": 2, "float16": 2,
         "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4, "float64": 8, "int64": 8, "uint64": 8}


NAMES = {"bool": "BOOL", "int8": "I8", "uint8": "U8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
         "int16": "I16", "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32",
         "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64"}


def write_safetensors(path, tensors, metadata):
    """The definition of the format, in the order of the dict."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        header[name] = {"dtype": NAMES[t["dtype"]], "shape": t["shape"],
                        "data_offsets": [len(data), len(data) + len(t["data"])]}
        data += t["data"]
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    with open(path, "rb") as f:
        content = f.read()
    n, = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8:8 + n]), content[8 + n:]
    metadata = header.pop("__metadata__", None)
    dtypes = {v: k for k, v in NAMES.items()}
    return {name: {"dtype": dtypes[t["dtype"]], "shape": t["shape"], "data": data[slice(*t["data_offsets"])]}
            for name, t in header.items()}, metadata


def check(bt, wanted):
    with open(bt, "rb") as f:
        content = f.read()
    tensors, metadata = read_safetensors(wanted)
    got = dict(bintensors.deserialize(content))
    assert sorted(got) == sorted(tensors), (sorted(got), sorted(tensors))
    for name, t in tensors.items():
        g = got[name]
        assert (NAMES[t["dtype"]], t["shape"], t["data"]) == (g["dtype"], list(g["shape"]), bytes(g["data"])), name
    with bintensors.safe_open(bt, framework="numpy") as f:
        assert f.metadata() == metadata
    assert bytes(bintensors.serialize(tensors, metadata)) == content


if sys.argv[1] == "--check":
    check(*sys.argv[2:])
    sys.exit()

folder = sys.argv[1]
rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)


def tensor(dtype, *shape):
    n = math.prod(shape) * SIZES[dtype]
    data = bytes(rng.randrange(2 if dtype == "bool" else 256) for _ in range(n))
    return {"dtype": dtype, "shape": list(shape), "data": data}


def save(name, tensors, metadata=None):
    path = os.path.join(folder, name)
    with open(path + ".bt", "wb") as f:
        f.write(bytes(bintensors.serialize(tensors, metadata)))
    write_safetensors(path + ".safetensors", tensors, metadata)


save("dtypes", {d: tensor(d, 2, 3) for d in SIZES})
save("shapes", {"scalar": tensor("float32"), "empty": tensor("float32", 0), "": tensor("uint8", 1, 1, 1),
                "größe": tensor("uint8", 251, 1), "n" * 300: tensor("uint8", 250), "{": tensor("int16", 300, 2)},
     {"format": "pt"})
save("one", {"w": tensor("float32", 2)}, {"a": "b"})
save("metadata", {"w": tensor("float32", 2)}, {"b": "größe", "a": "x" * 70000, "": ""})
save("no_metadata", {"w": tensor("float32", 2)}, {})
save("nothing", {})
