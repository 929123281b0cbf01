"""Writes the vectors of float conversion next to this script.

For every format X of at most 8 bits:

  X.decode     the float32 of each code of X, in order

For every format X that rounds, and each source format S of F32 and F64 (only
F64 if X is F32):

  S-X.round    pairs of a number in format S and its code in format X

All numbers and codes are little endian. A code has 1, 2 or 4 bytes.

The decode vectors come from ml_dtypes. The rounding vectors come from PyTorch,
with two exceptions:

- PyTorch rounds a float64 to float32 first, then again to formats of 8 and 16
  bits. Where the first step lands on a tie, the second goes the wrong way. The
  Go code rounds once. So these vectors, F64-X with X below F32, come from exact
  rational arithmetic. It takes the codes of overflow and NaN from PyTorch, and
  the script checks that it agrees with PyTorch for every F32-X pair.
- PyTorch's BF16 NaNs lose the sign of their source, in a different way for long
  and short tensors (0xffff and 0x7fc0). The vectors have the sign of the source.

NaN payloads do not matter: a reader compares NaNs as NaNs with their sign.

The sources are: every midpoint between neighbouring values, or a sample for
formats of 16 bits and more; the values themselves; the limits of overflow and
underflow; the neighbours of all these; zeros, infinities and NaNs; random bits,
half of them with an exponent in or near the range of X. All in both signs.

Usage, with Python 3.11:

  pip install torch==2.15.0 numpy==2.4.6 ml_dtypes==0.6.0
  python generate.py
"""

import bisect
import fractions
import pathlib
import random

import ml_dtypes
import numpy as np
import torch

here = pathlib.Path(__file__).parent

decoded = {  # format: (type, bits)
    "F4": (ml_dtypes.float4_e2m1fn, 4),
    "E2M3": (ml_dtypes.float6_e2m3fn, 6),
    "E3M2": (ml_dtypes.float6_e3m2fn, 6),
    "E8M0": (ml_dtypes.float8_e8m0fnu, 8),
    "E5M2": (ml_dtypes.float8_e5m2, 8),
    "E4M3": (ml_dtypes.float8_e4m3fn, 8),
    "E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, 8),
    "E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, 8),
}
rounded = {
    "E5M2": torch.float8_e5m2,
    "E4M3": torch.float8_e4m3fn,
    "E5M2FNUZ": torch.float8_e5m2fnuz,
    "E4M3FNUZ": torch.float8_e4m3fnuz,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
}


def by_torch(x, dtype):
    """The codes of the numpy array x in a format of PyTorch."""
    raw = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[dtype.itemsize]
    code = torch.from_numpy(x).to(dtype).view(raw).numpy()
    code = code.view(f"<u{dtype.itemsize}").copy()
    if dtype == torch.bfloat16:
        nan = np.isnan(x)
        code[nan] = np.where(np.signbit(x[nan]), 0xFFC0, 0x7FC0)
    return code


class Exact:
    """Rounds to one of the formats of at most 16 bits by exact arithmetic."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.sign = 1 << (8 * dtype.itemsize - 1)
        self.raw = f"<u{dtype.itemsize}"
        # The codes of the finite values that are not negative start at 0 and
        # rise with the value.
        values = finite_values(dtype)
        self.values = [fractions.Fraction(float(v)) for v in values]
        self.values.append(2 * self.values[-1] - self.values[-2])

    def code(self, x):
        if np.isnan(x) or np.isinf(x):
            return by_torch(np.array([x]), self.dtype)[0]
        y = abs(fractions.Fraction(float(x)))
        i = bisect.bisect_right(self.values, y) - 1  # values[i] <= y
        if i < len(self.values) - 1:
            middle = (self.values[i] + self.values[i + 1]) / 2
            if y > middle or y == middle and i % 2 == 1:
                i += 1
        if i == len(self.values) - 1:  # beyond the largest: as infinity
            return by_torch(np.array([np.copysign(np.inf, x)]), self.dtype)[0]
        if np.signbit(x) and not (i == 0 and "fnuz" in str(self.dtype)):
            i |= self.sign
        return i

    def codes(self, x):
        return np.array([self.code(v) for v in x], self.raw)


def finite_values(dtype):
    """The finite values of a format of at most 16 bits, from 0 up, as float64."""
    half = np.arange(1 << (8 * dtype.itemsize - 1), dtype=f"u{dtype.itemsize}")
    raw = torch.from_numpy(half.view(f"i{dtype.itemsize}"))
    values = raw.view(dtype).double().numpy()
    return values[np.isfinite(values)]


def neighbours(x):
    """x and the number of its type on either side."""
    up, down = x.dtype.type(np.inf), x.dtype.type(-np.inf)
    return np.concatenate([np.nextafter(x, down), x, np.nextafter(x, up)])


def sources(name, dtype, source, rng):
    """The numbers of type source to round to dtype."""
    size = source.itemsize
    if name == "F32":
        bits = [rng.getrandbits(31) % 0x7F800000 for _ in range(100)]
        # The smallest and the largest, and those around the first normal one.
        bits += [*range(6), 0x7FFFFE, 0x7FFFFF, 0x800000, 0x800001, 0x7F7FFFFE]
        low = np.array(bits, "<u4").view("<f4").astype("f8")
        high = np.array([b + 1 for b in bits], "<u4").view("<f4").astype("f8")
        middle = (low + high) / 2
        largest = 2.0**128 - 2.0**104
        middle = np.append(middle, 2.0**128 - 2.0**103)
    else:
        finite = finite_values(dtype)
        largest = finite[-1]
        at = np.arange(len(finite))
        if dtype.itemsize == 2:  # a sample: both ends and the middle in strides
            at = np.r_[0:24, 1020:1028, len(finite) - 24 : len(finite)]
            at = np.union1d(at, np.arange(0, len(finite), 503))
        beyond = np.append(finite[1:], 2 * finite[-1] - finite[-2])
        low, high = finite[at], beyond[at]
        middle = (low + high) / 2
    with np.errstate(over="ignore"):
        edges = np.append(middle, [largest, 2 * largest]).astype(source)
        plain = np.append(low, high).astype(source)
    info = np.finfo(source)
    special = [0, info.smallest_subnormal, info.smallest_normal, info.max]
    special += [np.inf, np.nan]
    x = np.concatenate([neighbours(edges), plain, np.array(special, source)])

    # Random bits. Those of the second half have an exponent in or near the
    # range of dtype; f is the width of the mantissa of source.
    f, bias = (23, 127) if size == 4 else (52, 1023)
    smallest = {"BF16": -133, "F32": -149, "F16": -24}.get(name, -18)
    least, most = smallest - 3, int(np.log2(largest)) + 2
    least, most = max(least + bias, 0), min(most + bias, 2 * bias + 1)
    random_bits = []
    for i in range(600):
        bits = rng.getrandbits(8 * size)
        if i % 2 == 1:
            mantissa = bits & ((1 << f) - 1)
            bits = rng.randint(least, most) << f | mantissa
        random_bits.append(bits)
    x = np.append(x, np.array(random_bits, f"<u{size}").view(source))
    x = np.concatenate([x, -x])
    return np.unique(x.view(f"<u{size}")).view(source)


for name, (dtype, bits) in decoded.items():
    codes = np.arange(1 << bits, dtype="u1").view(dtype)
    codes.astype("<f4").tofile(here / f"{name}.decode")

for name, dtype in rounded.items():
    exact = None if name == "F32" else Exact(dtype)
    for source in ["F64"] if name == "F32" else ["F32", "F64"]:
        rng = random.Random(f"{source}-{name}")
        x = sources(name, dtype, np.dtype({"F32": "<f4", "F64": "<f8"}[source]), rng)
        if source == "F32" or exact is None:
            code = by_torch(x, dtype)
        else:
            code = exact.codes(x)
            twice = by_torch(x, dtype)
            print(f"{source}-{name}: {(code != twice).sum()} differ from PyTorch")
        if source == "F32":
            np.testing.assert_array_equal(code, exact.codes(x))
        pairs = np.zeros(len(x), [("x", x.dtype), ("code", code.dtype)])
        pairs["x"], pairs["code"] = x, code
        pairs.tofile(here / f"{source}-{name}.round")
