"""Writes arrays.json: arrays, and the text that numpy prints for them with aligned %.8g."""

import json
import pathlib

import numpy as np

rng = np.random.default_rng(1)


def arrays():
    for dtype in (np.float16, np.float32, np.float64):
        for scale in (1, 1e-3, 30, 1e4, 1e-6, 1e9):
            if dtype == np.float16 and scale > 1e5:
                continue
            for shape in ((), (5,), (2, 3, 4), (40,), (1001,), (7, 200), (2, 2, 2, 3), (20, 20, 20)):
                yield (rng.standard_normal(shape) * scale).astype(dtype)
        for values in (
            [0, 0, 0], [1, 2, 3], [0.1, 0.5], [np.nan, 1], [np.inf, -np.inf, 2.5], [np.nan], [-np.inf, np.nan], [np.inf],
            [1e-5, 1], [1e-4, 0.05], [-0.0, 0.0], [65504, 1], [1e4, 1e-4], [123456, 0.001], [np.nan, 1e-7, 3e30],
            [0.33333333, 1e8], [99999999, 1], [1 / 3, 2 / 3, 1e3 / 3], [1e-7], [6e-8, 2049, 1024, 0.0009765625], [1e100, 1],
        ):
            with np.errstate(over="ignore"):
                yield np.array(values, dtype=dtype)
                for v in values:
                    yield np.array(v, dtype=dtype)
        yield np.zeros((0, 3), dtype=dtype)
    for dtype in (np.int8, np.int64, np.uint8, np.uint64):
        info = np.iinfo(dtype)
        for shape in ((), (6,), (3, 4), (50,), (2000,), (30, 40), (5, 300), (6, 300)):
            yield rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        yield np.arange(100, dtype=dtype)
    for shape in ((), (3,), (2, 3), (40,)):
        yield rng.random(shape) > 0.5
    for shape in ((), (2,), (3, 4), (600, 2)):
        for scale in (1, 1e-6, 1e3):
            yield ((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) * scale).astype(np.complex64)
    yield np.array([complex(0, 1), complex(np.nan, -np.inf), complex(-2.5, 0)], dtype=np.complex64)
    for c in (0, 1, 1j, -1j, 2 - 0.5j):
        yield np.array(c, dtype=np.complex64)


def text(x):
    if isinstance(x, np.complexfloating):
        return "%.8g%+.8gj" % (short(x.real), short(x.imag))
    return "%.8g" % short(x) if isinstance(x, np.floating) else str(x)


def short(x):  # the number of the fewest digits that is still x
    return float(str(x if x.dtype == np.float64 else np.float32(x)))


def row(a):
    shown = a  # its corners, if it is summarized
    if a.size > 1000:
        shown = a[np.ix_(*[[0, 1, 2, n - 3, n - 2, n - 1] if n > 6 else list(range(n)) for n in a.shape])]
    width = max((len(text(x)) for x in shown.flat), default=0)
    printed = np.array2string(a, formatter={"all": lambda x: text(x).rjust(width)})
    data = np.ascontiguousarray(shown).tobytes().hex()
    return {"dtype": str(a.dtype), "shape": list(a.shape), "corners": data, "text": printed}


out = pathlib.Path(__file__).parent / "arrays.json"
out.write_text("[\n" + ",\n".join(json.dumps(row(np.asarray(a))) for a in arrays()) + "\n]\n")
