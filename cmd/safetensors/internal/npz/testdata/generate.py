"""Writes files of numpy, and next to each what Open must return of it.

    python generate.py FOLDER [SEED]
    python generate.py --check FILE.npz FILE.safetensors

Each FILE.npz and FILE.npy has a FILE.safetensors with the same arrays. With --check it
compares the arrays that numpy and safetensors read, and the headers with those that
numpy writes. Needs testdata/requirements.txt of the repository.
"""

import io
import os
import sys
import zipfile

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8"]


def check(npz, wanted):
    want = load_file(wanted)
    with np.load(npz, allow_pickle=False) as got, zipfile.ZipFile(npz) as z:
        assert sorted(got.files) == sorted(want), (got.files, list(want))
        for name, w in want.items():
            g = got[name]
            assert g.dtype == w.dtype and g.shape == w.shape and g.tobytes() == w.tobytes(), name
            f = io.BytesIO()
            np.save(f, np.ascontiguousarray(g).reshape(g.shape))
            assert z.read(name + ".npy") == f.getvalue(), name
            assert z.getinfo(name + ".npy").compress_type == zipfile.ZIP_STORED


if sys.argv[1] == "--check":
    check(*sys.argv[2:])
    sys.exit()

folder = sys.argv[1]
random = np.random.default_rng(int(sys.argv[2]) if len(sys.argv) > 2 else 0)


def bits(dtype, *shape):
    d = np.dtype(dtype)
    raw = random.integers(0, 2 if d.kind == "b" else 256, int(np.prod(shape)) * d.itemsize, np.uint8)
    return raw.view(d).reshape(shape)


def expect(name, arrays):
    flat = {k: np.ascontiguousarray(a.astype(a.dtype.newbyteorder("<"))).reshape(a.shape) for k, a in arrays.items()}
    save_file(flat, os.path.join(folder, name + ".safetensors"))


def path(name):
    return os.path.join(folder, name)


arrays = {d.strip("?") or "bool": bits(d, 3, 5) for d in DTYPES}
arrays |= {"scalar": bits("f4"), "empty": bits("f4", 0, 3), "folder/größe": bits("f8", 1), "": bits("u1", 2), "a.npy": bits("u1", 3)}
np.savez(path("stored"), **arrays)
expect("stored", arrays)
np.savez_compressed(path("compressed"), **arrays)
expect("compressed", arrays)
big = {d: bits(d, 3, 5).astype(np.dtype(d).newbyteorder(">")) for d in DTYPES if np.dtype(d).kind != "c"}
big["c8"] = (np.arange(6) * (1 + 2j)).astype(">c8")
np.savez(path("big_endian"), **big)
expect("big_endian", big)
fortran = {d: np.asfortranarray(bits(d, 3, 5)) for d in ["?", "i2", "f4", "f8", "c8"]}
fortran["deep"] = np.asfortranarray(bits("f2", 2, 3, 4, 5))
fortran["big_endian"] = np.asfortranarray(bits("i4", 4, 3).astype(">i4"))
np.savez(path("fortran"), **fortran)
expect("fortran", fortran)
np.savez_compressed(path("fortran_compressed"), **fortran)
expect("fortran_compressed", fortran)
np.savez(path("nothing"))
expect("nothing", {})

# Single arrays, in all versions of the format.
for version in [(1, 0), (2, 0), (3, 0)]:
    name = "version%d" % version[0]
    a = np.asfortranarray(bits("f4", 3, 4))
    with open(path(name + ".npy"), "wb") as f:
        np.lib.format.write_array(f, a, version)
    expect(name, {"arr_0": a})

refused = path("refused")
os.makedirs(refused, exist_ok=True)
for name, a in {
    "object": np.array([{}, []], dtype=object),
    "strings": np.array(["a", "bc"]),
    "bytes": np.array([b"a", b"bc"]),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "record": np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]),
    "bfloat16": np.zeros(2, ml_dtypes.bfloat16),
    "float8": np.zeros(2, ml_dtypes.float8_e4m3fn),
    "complex128": np.zeros(2, "c16"),
    "longdouble": np.zeros(2, "g"),
}.items():
    np.save(os.path.join(refused, name + ".npy"), a, allow_pickle=True)
