"""Writes the vectors of float conversion beside this script.

For every float dtype X of up to 16 bits that ml_dtypes or numpy has:

  X.decode  the float32 (little endian) of each code of X, up to 8 bits
  X.encode  pairs of a float32 and the code (a byte, or two for 16 bits) that it
            rounds to; for dtypes that F32 can be converted to

The float32 of the pairs lie at and beside the midpoints between neighbouring
values, and around overflow and underflow. NaN payloads are of no concern here:
a reader compares NaNs as NaNs, with their sign.

Usage: pip install numpy ml_dtypes && python generate.py
"""

import pathlib

import ml_dtypes
import numpy as np

np.seterr(all="ignore")
here = pathlib.Path(__file__).parent

dtypes = {  # name in safetensors: (type, bits, whether it is a target)
    "F4": (ml_dtypes.float4_e2m1fn, 4, False),
    "F6_E2M3": (ml_dtypes.float6_e2m3fn, 6, False),
    "F6_E3M2": (ml_dtypes.float6_e3m2fn, 6, False),
    "F8_E8M0": (ml_dtypes.float8_e8m0fnu, 8, False),
    "F8_E5M2": (ml_dtypes.float8_e5m2, 8, True),
    "F8_E4M3": (ml_dtypes.float8_e4m3fn, 8, True),
    "F8_E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, 8, True),
    "F8_E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, 8, True),
    "BF16": (ml_dtypes.bfloat16, 16, True),
    "F16": (np.float16, 16, True),
}


def neighbours(x):
    """The float32 x and the one on either side of it."""
    up, down = np.float32(np.inf), np.float32(-np.inf)
    return np.concatenate([np.nextafter(x, down), x, np.nextafter(x, up)])


for name, (dtype, bits, target) in dtypes.items():
    raw = np.dtype("<u2" if bits == 16 else "u1")
    codes = np.arange(1 << bits, dtype=np.uint32).astype(raw)
    values = codes.view(dtype).astype("<f4")
    if bits <= 8:
        values.tofile(here / f"{name}.decode")
    if not target:
        continue
    finite = np.unique(values[np.isfinite(values) & (values >= 0)])
    if bits == 16:  # a sample: both ends and the middle in strides
        at = np.r_[0:64, 1000:1064, len(finite) - 64 : len(finite)]
        at = np.union1d(at, np.arange(0, len(finite), 251))
    else:
        at = np.arange(len(finite))
    low = finite.astype("f8")
    high = np.append(low[1:], 2 * low[-1] - low[-2])  # the first beyond the largest
    mid = ((low + high) / 2)[at].astype("<f4")  # exact, or inf for BF16
    edge = np.array([0, 1e-45, 1.1754944e-38, 3.4028235e38, np.inf, np.nan], "<f4")
    x = np.concatenate([neighbours(mid), finite[at], high[at].astype("<f4"), edge])
    x = np.unique(np.concatenate([x, -x]).view("<u4")).view("<f4")
    pairs = np.zeros(len(x), dtype=[("x", "<f4"), ("code", raw)])
    pairs["x"], pairs["code"] = x, x.astype(dtype).view(raw)
    pairs.tofile(here / f"{name}.encode")
