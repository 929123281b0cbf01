#!/usr/bin/env python3
"""Makes the golden files, expected.json and slices.json in this folder.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install -r testdata/requirements.txt
    /tmp/venv/bin/python testdata/generate.py

Two runs give the same bytes. The safetensors package writes every file, but for
those of F6_E2M3 and F6_E3M2, which it reads and cannot write. Every file is
read back by it, and ml_dtypes says what the values are.
"""

import ctypes
import hashlib
import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import TensorSpec, deserialize, serialize

HERE = Path(__file__).parent

# The dtypes as the format spells them, with what the package's writer calls
# them (None: it has no name for it) and the numpy dtype of an element.
DTYPES = {
    "BOOL": ("bool", np.uint8),
    "F4": ("float4_e2m1fn_x2", ml_dtypes.float4_e2m1fn),
    "F6_E2M3": (None, ml_dtypes.float6_e2m3fn),
    "F6_E3M2": (None, ml_dtypes.float6_e3m2fn),
    "U8": ("uint8", np.uint8),
    "I8": ("int8", np.int8),
    "F8_E5M2": ("float8_e5m2", ml_dtypes.float8_e5m2),
    "F8_E4M3": ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
    "F8_E8M0": ("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz),
    "I16": ("int16", np.int16),
    "U16": ("uint16", np.uint16),
    "F16": ("float16", np.float16),
    "BF16": ("bfloat16", ml_dtypes.bfloat16),
    "I32": ("int32", np.int32),
    "U32": ("uint32", np.uint32),
    "F32": ("float32", np.float32),
    "C64": ("complex64", np.complex64),
    "F64": ("float64", np.float64),
    "I64": ("int64", np.int64),
    "U64": ("uint64", np.uint64),
}
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}  # where elements are packed


class Tensor:
    """What a file says of a tensor: the format's name of its dtype, its shape and its bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), bytes(data)


class Array(Tensor):
    """A tensor whose elements are known."""

    def __init__(self, dtype, array):
        self.array = np.asarray(array, order="C")
        data = self.array.tobytes()
        super().__init__(dtype, self.array.shape, pack(data, BITS[dtype]) if dtype in BITS else data)

    def values(self):
        """The elements: integers, or floats as text that a parser of float64 reads exactly."""
        flat = self.array.ravel()
        if self.dtype == "C64":
            flat = flat.view(np.float32)
        if np.issubdtype(flat.dtype, np.integer):
            return flat.tolist()
        return [repr(float(v)) for v in flat]  # JSON has no NaN


def pack(patterns, bits):
    """Packs one pattern a byte into `bits` each, element 0 in the low bits."""
    number = sum(p << (i * bits) for i, p in enumerate(patterns))
    return number.to_bytes(len(patterns) * bits // 8, "little")


def encode(tensors, metadata=None):
    """The file of the tensors, from the package's own writer."""
    buffers = {n: ctypes.create_string_buffer(t.data, len(t.data)) for n, t in tensors.items()}
    specs = {}
    for name, t in tensors.items():
        shape = list(t.shape)
        if t.dtype == "F4":
            shape[-1] //= 2  # the writer wants the shape of the bytes
        specs[name] = TensorSpec(
            dtype=DTYPES[t.dtype][0],
            shape=shape,
            data_ptr=ctypes.addressof(buffers[name]),
            data_len=len(t.data),
        )
    return bytes(serialize(specs, metadata))


def encode_by_hand(name, t):
    """A file of one tensor, laid out as the package lays out the others."""
    entry = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [0, len(t.data)]}
    header = json.dumps({name: entry}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + t.data


def table(data, tensors):
    """What a reader is to find in the file of these tensors, in file order."""
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", None)
    order = sorted(header, key=lambda name: header[name]["data_offsets"])  # ties as in the header
    return {"metadata": metadata, "tensors": [expected(n, tensors[n]) for n in order]}


def expected(name, t):
    want = {"name": name, "dtype": t.dtype, "shape": t.shape}
    if isinstance(t, Array) and len(t.data) <= 512:
        return want | {"data": t.data.hex(), "values": t.values()}
    return want | {"sha256": hashlib.sha256(t.data).hexdigest()}


def write(path, tensors, metadata=None):
    """Writes a golden file and returns its table."""
    if any(DTYPES[t.dtype][0] is None for t in tensors.values()):
        data = encode_by_hand(*next(iter(tensors.items())))
    else:
        data = encode(tensors, metadata)
    (HERE / path).write_bytes(data)
    read = {n: (t["dtype"], t["shape"], t["data"]) for n, t in deserialize(data)}
    assert read == {n: (t.dtype, t.shape, t.data) for n, t in tensors.items()}, path
    return {"file": path} | table(data, tensors)


def patterns(dtype):
    """All bit patterns of a dtype up to 8 bits, the interesting ones beyond."""
    element = np.dtype(DTYPES[dtype][1])
    if dtype == "BOOL":
        return np.array([[0, 1, 1, 0], [2, 127, 128, 255]], np.uint8)
    if element.itemsize == 1:
        bits = BITS.get(dtype, 8)
        shape = {4: (2, 8), 6: (4, 16), 8: (16, 16)}[bits]
        return np.arange(1 << bits, dtype=np.uint8).view(element).reshape(shape)
    if np.issubdtype(element, np.integer):
        info = np.iinfo(element)
        lowest, highest = info.min, info.max
        near = {lowest, lowest + 1, -129, -2, -1, 0, 1, 127, 128, 255, 256, highest - 1, highest}
        return np.array(sorted(v for v in near if v >= lowest), element)
    if dtype == "C64":
        return floats(np.float32).view(np.complex64)
    return floats(element)


def floats(element):
    """Zeros, subnormals, normals, the largest, infinities and NaNs, of both signs."""
    info = ml_dtypes.finfo(element)
    bits, mantissa = info.bits, info.nmant
    infinity = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    one = infinity >> 1 & ~((1 << mantissa) - 1)
    positive = [
        0,  # zero
        1,  # the smallest subnormal
        (1 << mantissa) - 1,  # the largest subnormal
        1 << mantissa,  # the smallest normal
        (1 << mantissa) + 1,
        one - 1,
        one,
        one + 1,
        one | 1 << (mantissa - 1),  # 1.5
        one + (3 << mantissa) + 5,
        int.from_bytes(b"\x12\x34\x56\x78\x9a\xbc\xde\xf0"[: bits // 8]),  # no two bytes alike
        infinity - 1,  # the largest
        infinity,
        infinity | 1,  # a signalling NaN
        infinity | 1 << (mantissa - 1),  # the quiet NaN
        infinity | (1 << mantissa) - 1,  # a NaN with every payload bit
    ]
    both = [[p, 1 << (bits - 1) | p] for p in positive]
    return np.array(both, f"u{bits // 8}").view(element)


def model():
    """A decoder of two layers, small enough to be read as a hex dump."""
    rng = np.random.default_rng(20)
    vocabulary, hidden, inner = 64, 32, 48

    def weight(dtype, *shape):
        return Array(dtype, (rng.standard_normal(shape) * 0.02).astype(DTYPES[dtype][1]))

    def norm():
        return Array("F32", (1 + rng.standard_normal(hidden) * 0.01).astype(np.float32))

    tensors = {"model.embed_tokens.weight": weight("BF16", vocabulary, hidden)}
    for layer in range(2):
        prefix = f"model.layers.{layer}."
        tensors[prefix + "input_layernorm.weight"] = norm()
        for part in "qkvo":
            tensors[f"{prefix}self_attn.{part}_proj.weight"] = weight("BF16", hidden, hidden)
        tensors[prefix + "post_attention_layernorm.weight"] = norm()
        tensors[prefix + "mlp.gate_proj.weight"] = weight("BF16", inner, hidden)
        tensors[prefix + "mlp.up_proj.weight"] = weight("BF16", inner, hidden)
        tensors[prefix + "mlp.down_proj.weight"] = weight("BF16", hidden, inner)
    tensors["model.norm.weight"] = norm()
    tensors["model.position_ids"] = Array("I64", np.arange(vocabulary).reshape(1, -1))
    tensors["lm_head.weight"] = weight("F16", vocabulary, hidden)
    return tensors


def zeros():
    """Tensors without elements, at the beginning, between others and at the end, and a scalar."""
    return {
        "first": Array("U64", np.zeros((0,), np.uint64)),
        "rows": Array("F32", np.zeros((0, 3), np.float32)),
        "columns": Array("F32", np.zeros((3, 0), np.float32)),
        "middle": Array("F32", np.zeros((2, 0, 5), np.float32)),
        "scalar": Array("F32", np.float32(-1.5)),
        "one": Array("F32", np.array([[[2.5]]], np.float32)),
        "last": Array("BOOL", np.zeros((0,), np.uint8)),
    }


STRANGE = (
    "quotes \" ' backslash \\ slash / controls \0\x01\b\t\n\v\f\r\x1b\x1f del \x7f"
    " html <a&b> separators \u2028\u2029\x85 accents \u00e9e\u0301 han \u91cd\u307f"
    " emoji \U0001f9e0 last \uffff\U0010ffff"
)


def slices(count=300):
    """Random slices, written as in Python, with the shape and the flat indices numpy finds."""
    rng = np.random.default_rng(5)
    yield sliced([], [])
    for i in range(count - 1):
        rank = 1 + i % 5
        while True:
            shape = [0 if rng.random() < 0.02 else int(d) for d in rng.integers(1, 7, rank)]
            if np.prod(shape) <= 700:
                break
        given = max(rng.integers(rank, size=2, endpoint=True))
        yield sliced(shape, [random_range(rng, d) for d in shape[:given]])


def sliced(shape, ranges):
    index = tuple(eval(f"np.s_[{r}]") for r in ranges)
    got = np.arange(np.prod(shape, dtype=int)).reshape(shape)[index]
    row = {"shape": shape, "ranges": ranges}
    return row | {"want_shape": list(got.shape), "want": got.ravel().tolist()}


def random_range(rng, size):
    """An index or a slice that lies within a dimension of that size."""
    kind = rng.choice(["all", "at", "span"], p=[0.2, 0.2, 0.6])
    if kind == "at" and size > 0:
        return str(rng.integers(-size, size))
    by = f":{rng.integers(1, 4)}" if rng.random() < 0.4 else ""
    if kind != "span":
        return ":" + by
    start, stop = np.sort(rng.integers(size, size=2, endpoint=True))
    if start == stop and rng.random() < 0.8:  # few of the results shall be empty
        start, stop = 0, size
    if start < size and rng.random() < 0.4:
        start -= size
    if stop < size and rng.random() < 0.4:
        stop -= size
    return f"{start}:{stop}{by}"


def write_lines(path, rows):
    """Writes a JSON array with one row a line, which is easy to read and to diff."""
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (HERE / path).write_text(f"[\n{lines}\n]\n")


def main():
    (HERE / "golden").mkdir(exist_ok=True)
    rows = [
        write(f"golden/{dtype.lower()}.safetensors", {"x": Array(dtype, patterns(dtype))})
        for dtype in DTYPES
    ]
    text = Array("U8", np.frombuffer(b"text", np.uint8))
    rows += [
        write("model.safetensors", model(), {"format": "pt"}),
        write("golden/zero_size.safetensors", zeros()),
        write("golden/no_tensors.safetensors", {}),
        write("golden/no_tensors_metadata.safetensors", {}, {"format": "pt"}),
        write("golden/empty_metadata.safetensors", {"x": text}, {}),
        write("golden/escapes.safetensors", {STRANGE: text, "": text}, {STRANGE: STRANGE[::-1]}),
    ]
    write_lines("golden/expected.json", rows)
    write_lines("slices.json", slices())


if __name__ == "__main__":
    main()
