"""Writes files of torch.save, and next to each what Open must return of it.

    python generate.py FOLDER [SEED]

Each FILE.pt has a FILE.safetensors with the same tensors, contiguous, and FILE.key
if a key selects them, and FILE.refused with the names of what is refused. Needs testdata/requirements-torch.txt of the repository.
"""

import argparse
import collections
import enum
import functools
import io
import json
import os
import pathlib
import sys
import warnings
import zipfile

import numpy as np
import torch
from safetensors.torch import save_file

warnings.filterwarnings("ignore")
folder = sys.argv[1]
torch.manual_seed(int(sys.argv[2]) if len(sys.argv) > 2 else 0)

WIDE = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
        torch.uint64, torch.uint32, torch.uint16, torch.complex64]
BYTES = [torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
         torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def bits(dtype, *shape):
    """A tensor of random bits; of bools, 0 and 1."""
    width = torch.empty((), dtype=dtype).element_size()
    count = int(np.prod(shape, dtype=np.int64))
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count * width,), dtype=torch.uint8)
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return raw.view(dtype).reshape(shape)


def flat(tensors):
    """The tensors as save_file takes them: contiguous, nothing shared."""
    out = {}
    for name, t in tensors.items():
        c = torch.empty(t.shape, dtype=t.dtype)
        if t.dtype.itemsize == 1:
            c.view(torch.uint8).copy_(t.detach().view(torch.uint8))
        else:
            c.copy_(t.detach())
        out[name] = c
    return out


def save(name, obj, tensors, key=None, metadata=None, rewrite=None, refused=(), **options):
    f = io.BytesIO()
    torch.save(obj, f, **options)
    content = f.getvalue() if rewrite is None else rewrite(f.getvalue())
    with open(os.path.join(folder, name + ".pt"), "wb") as out:
        out.write(content)
    save_file(flat(tensors), os.path.join(folder, name + ".safetensors"), metadata)
    if key is not None:
        with open(os.path.join(folder, name + ".key"), "w") as out:
            out.write(key)
    if refused:
        with open(os.path.join(folder, name + ".refused"), "w") as out:
            out.write("\n".join(refused))


def rezip(content, method, change=lambda name, b: b):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w", method) as new:
        for name in old.namelist():
            new.writestr(zipfile.ZipInfo(name), change(name, old.read(name)), method)
    return out.getvalue()


def big_endian(widths):
    """Makes of a file what a big-endian machine would have written."""
    def change(name, b):
        if name.endswith("/byteorder"):
            return b"big"
        if "/data/" in name and not name.endswith("serialization_id"):
            return np.frombuffer(b, f"V{widths[name.rsplit('/', 1)[1]]}").view(np.uint8).reshape(
                -1, widths[name.rsplit('/', 1)[1]])[:, ::-1].tobytes()
        return b
    return lambda content: rezip(content, zipfile.ZIP_STORED, change)


def views(dtype):
    base = bits(dtype, 6, 8)
    deep = bits(dtype, 3, 4, 5, 2)
    shared = bits(dtype, 10)
    return {
        "whole": base,
        "transposed": base.t(),
        "slice": base[1:4, 2:7],
        "steps": base[::2, 1::3],
        "row": base[3],
        "column": base[:, 3],
        "permuted": deep.permute(3, 1, 0, 2),
        "channels_last": deep.contiguous(memory_format=torch.channels_last),
        "expanded": bits(dtype, 3, 1).expand(2, 3, 4),
        "overlapping": shared.as_strided((4, 3), (2, 1), 1),
        "scalar": bits(dtype),
        "one": bits(dtype, 1, 1, 1),
        "empty": bits(dtype, 0),
        "empty_slice": base[:, 3:3],
        "shared": shared,
        "shared_too": shared,
        "parameter": torch.nn.Parameter(bits(dtype, 2, 2), requires_grad=dtype.is_floating_point),
    }


model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
state = model.state_dict()
save("state_dict", state, state)

every = {str(d).removeprefix("torch."): bits(d, 3, 5) for d in WIDE + BYTES}
save("dtypes", every, every)
fp4 = bits(torch.uint8, 4, 3).view(torch.float4_e2m1fn_x2)
f = io.BytesIO()
torch.save({"float4": fp4}, f)
with open(os.path.join(folder, "float4.pt"), "wb") as out:
    out.write(f.getvalue())
save_file({"float4": fp4}, os.path.join(folder, "float4.safetensors"))

for dtype in [torch.float32, torch.bfloat16, torch.uint8]:
    v = views(dtype)
    save("views_" + str(dtype).removeprefix("torch."), v, v)
v = views(torch.int64)
save("protocol4", v, v, pickle_protocol=4)
save("protocol5", collections.OrderedDict(v), v, pickle_protocol=5)
save("legacy", v, v, _use_new_zipfile_serialization=False)
save("legacy4", v, v, _use_new_zipfile_serialization=False, pickle_protocol=4)
some = {k: t for k, t in every.items() if k not in ("uint64", "uint32", "uint16") and not k.startswith("float8")}
save("legacy_dtypes", some, some, _use_new_zipfile_serialization=False)
save("compressed", v, v, rewrite=lambda b: rezip(b, zipfile.ZIP_DEFLATED))

wide = {str(d).removeprefix("torch."): bits(d, 3, 4).t() for d in WIDE if d != torch.complex64}
save("big_endian", wide, wide, rewrite=big_endian({str(i): t.element_size() for i, t in enumerate(wide.values())}))
c = {"complex64": bits(torch.complex64, 5)}
swapped = {"complex64": torch.view_as_complex(torch.view_as_real(c["complex64"]).flip(-1).contiguous())}
save("big_endian_complex", swapped, c, rewrite=big_endian({"0": 8}))

checkpoint = {
    "epoch": 3, "lr": 1e-4, "name": "größe", "best": True, "none": None,
    "model": {"state_dict": state, "ema.0": {"w": v["transposed"]}},
    "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"params": [0, 1], "betas": (0.9, 0.999)}]},
}
save("checkpoint", checkpoint, state, key="model.state_dict")
save("dotted", checkpoint, {"w": v["transposed"]}, key="model.ema.0")
mixed = {"w": v["whole"], "epoch": 3, "lr": 1e-4, "big": 1e300, "name": "größe", "best": True, "none": None, "nan": float("nan")}
save("mixed", mixed, {"w": v["whole"]}, metadata={
    "epoch": "3", "lr": "0.0001", "big": "1e+300", "name": "größe", "best": "true", "none": "null", "nan": "NaN"})
save("nothing", {}, {})

# What programs save beside the weights. Nothing of it is read, and the weights are.


class Precision(enum.Enum):
    HALF = 16


class Callback:
    """As one of Lightning: it has tensors of the model, itself, and a hook."""

    def __init__(self, model):
        self.best = model["0.weight"]
        self.parent = self
        self.hook = functools.partial(print, end="")
        self.history = [{"loss": np.float64(0.5)}]

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return self is other


class History(list):
    pass


class Config(dict):
    pass


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a, self.b = 1, torch.ones(2)


class Named(collections.namedtuple("Named", "x y")):
    pass


class Keywords:
    def __new__(cls, *, size):
        return super().__new__(cls)

    def __getnewargs_ex__(self):
        return (), {"size": 3}


def trainer(protocol):
    """What training leaves behind: weights, an optimizer's state, and everything else."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.125, betas=(0.5, 0.75))
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    sparse = torch.eye(2).to_sparse()
    callback = Callback(net.state_dict())
    cycle = {"name": "cycle"}
    cycle["self"] = cycle
    foreign = {
        "callbacks": {callback: [callback], "numbers": History([1, 2])},
        "args": argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("/a"), nested=argparse.Namespace(x=torch.ones(2))),
        "loss": np.float32(0.5),
        "rng": np.random.RandomState(0).get_state(),
        "generator": np.random.default_rng(0),
        "path": pathlib.PurePosixPath("runs/1"),
        "defaults": collections.defaultdict(list, {"a": [1], "w": net.state_dict()["0.weight"]}),
        "precision": Precision.HALF,
        "schedule": functools.partial(max, 1, key=len),
        "sets": {frozenset({1}): {1, 2}, "b": bytearray(b"abc")},
        "config": Config(a=Config(), b=net),
        "slots": Slots(),
        "named": Named(1, torch.ones(1)),
        "keywords": Keywords(size=3),
        "function": torch.nn.functional.relu,
        "type": Precision,
        "range": range(3),
        "complex": 1j,
        "cycle": cycle,
        "dtype": torch.float16, "device": torch.device("cpu"), "size": torch.Size([1, 2]),
        "sparse": sparse, "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "complex128": bits(torch.complex128, 2), "parameter_sparse": torch.nn.Parameter(sparse),
    }
    return {"before": foreign, "state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, **foreign}


for protocol in [2, 3, 4, 5]:
    ck = trainer(protocol)
    save(f"foreign{protocol}", ck, ck["state_dict"], key="state_dict", pickle_protocol=protocol)
# Legacy files have the source of modules, and where that is.
torch.serialization.get_source_lines_and_file = lambda *_: (["class Linear: pass\n"], 1, "nn.py")
ck = trainer(2)
save("foreign_legacy", ck, ck["state_dict"], key="state_dict", _use_new_zipfile_serialization=False)
state = ck["optimizer"]["state"]
save("optimizer", ck, {f"state.{i}.{k}": t for i, s in state.items() for k, t in s.items()}, key="optimizer", metadata={
    "param_groups": '[{"lr":0.125,"betas":[0.5,0.75],"eps":1e-8,"weight_decay":0,"amsgrad":false,"maximize":false,'
                    '"foreach":null,"capturable":false,"differentiable":false,"fused":null,"decoupled_weight_decay":false,"params":[0,1]}]'})
save("optimizer_state", ck, state[0], key="optimizer.state.0")
save("optimizer_tensor", ck, {"exp_avg": state[0]["exp_avg"]}, key="optimizer.state.0.exp_avg")
state = model.state_dict()
save("among", {**state, "sparse": torch.eye(2).to_sparse(), "args": argparse.Namespace(), "n": 1,
               "c": bits(torch.complex128, 2), "list": [1, {"a": None}], "bad": [1, {"a": 1j}], ("a",): 1},
     state, metadata={"n": "1", "list": '[1,{"a":null}]'}, refused=["<a tuple of 1>", "args", "bad", "c", "sparse"])
save("bare", v["whole"], {"tensor": v["whole"]})
save("list", [v["whole"], (v["scalar"], {"w": v["row"]})], {"0": v["whole"], "1.0": v["scalar"], "1.1.w": v["row"]})
save("integer_keys", {0: v["whole"], -1: v["row"]}, {"0": v["whole"], "-1": v["row"]})

# Whole modules, and what their state_dict is.


class Block(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3, bias=bias)
        self.norm = torch.nn.BatchNorm1d(3, affine=bias)
        self.activation = torch.nn.ReLU()
        self.register_buffer("scale", torch.ones(2))
        self.register_buffer("cache", torch.zeros(4), persistent=False)
        self.register_buffer("mask", None)
        self.register_module("none", None)
        self.stride = torch.tensor([8.0])  # an attribute, not of the state
        self.hook = print


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(True), Block(False)])
        self.by_name = torch.nn.ModuleDict({"head": torch.nn.Conv2d(1, 2, 2), "nothing": torch.nn.Identity()})
        self.by_name["head"] = self.by_name["head"].to(memory_format=torch.channels_last)
        self.tied = self.blocks[0].linear
        self.w = torch.nn.Parameter(torch.ones(2, 3).t())
        self.names = ["cat", "dog"]


net = Net()
save("module", net, net.state_dict())
save("module4", net, net.state_dict(), pickle_protocol=4)
save("module_legacy", net, net.state_dict(), _use_new_zipfile_serialization=False)
yolo = {"date": "2026-01-01", "epoch": -1, "best_fitness": None, "model": net.half(), "ema": None, "optimizer": None,
        "train_args": {"lr0": 0.01, "names": ["a"]}, "version": "8.4.0", "namespace": argparse.Namespace(task="detect")}
save("yolo", yolo, net.state_dict())
save("module_part", yolo, net.blocks[1].state_dict(), key="model.blocks.1")


class Old:
    """A tensor as PyTorch up to 0.3 pickles it, or a Parameter."""

    def __init__(self, t, parameter=False):
        self.t, self.parameter = t, parameter

    def __reduce__(self):
        if self.parameter:
            return torch.nn.parameter.Parameter, (Old(self.t), True), (True, False, collections.OrderedDict())
        return torch._utils._rebuild_tensor, (self.t.storage(), self.t.storage_offset(), tuple(self.t.size()), self.t.stride())


old = {"w": v["transposed"], "slice": v["slice"]}
save("old", {**{k: Old(t) for k, t in old.items()}, "p": Old(v["row"], True)}, {**old, "p": v["row"]},
     _use_new_zipfile_serialization=False)

# Folders, as transformers and peft write them, and one tensor in each that safetensors cannot hold.


def write(name, tensors):
    os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
    torch.save(tensors, os.path.join(folder, name))


a, b = {"a": bits(torch.bfloat16, 2, 3), "a.t": bits(torch.float32, 2, 3).t()}, {"b": bits(torch.int8, 4)}
refused_too = {"complex": bits(torch.complex128, 1)}
write("folders/one/pytorch_model.bin", a)
write("folders/one/training_args.bin", argparse.Namespace(lr=0.1))
write("folders/adapter/adapter_model.bin", b)
write("folders/adapter/other.bin", a)
write("folders/shards/pytorch_model-00001-of-00002.bin", a)
write("folders/shards/pytorch_model-00002-of-00002.bin", b | refused_too | {"unlisted": bits(torch.int8, 4)})
with open(os.path.join(folder, "folders", "shards", "pytorch_model.bin.index.json"), "w") as out:
    shard = "pytorch_model-0000%d-of-00002.bin"
    json.dump({"metadata": {"total_size": 56}, "weight_map": {k: shard % 1 for k in a} | {k: shard % 2 for k in b | refused_too}}, out, indent=2)
save_file(flat(a), os.path.join(folder, "folders", "one.safetensors"))
save_file(flat(b), os.path.join(folder, "folders", "adapter.safetensors"))
save_file(flat(a | b), os.path.join(folder, "folders", "shards.safetensors"))

# Files that are refused, each for the reason in its name.
refused = os.path.join(folder, "refused")
os.makedirs(refused, exist_ok=True)


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


class Getattr:
    def __reduce__(self):
        return getattr, (collections.OrderedDict, "__init__")


class Eval:
    def __reduce__(self):
        return eval, ("1+1",)


tagged = torch.ones(2)
tagged.tag = 1
for name, obj in {
    "system": {"w": v["whole"], "evil": Evil()},
    "eval": {"w": v["whole"], "evil": Eval()},
    "getattr": {"w": v["whole"], "evil": Getattr()},
    "model": torch.nn.ReLU(),
    "numbers": {"epoch": 3},
    "storage": {"w": v["whole"].untyped_storage()},
    "complex128": {"w": bits(torch.complex128, 2)},
    "complex32": {"w": bits(torch.complex32, 2)},
    "quantized": {"w": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)},
    "sparse": {"w": torch.eye(2).to_sparse()},
    "meta": {"w": torch.empty(2, device="meta")},
    "conj": {"w": c["complex64"].conj()},
    "neg": {"w": c["complex64"].conj().imag},
    "attribute": {"w": tagged},
    "key_missing": checkpoint,
    "bomb": {"w": torch.zeros(1).expand(1 << 20, 1 << 20)},
}.items():
    f = io.BytesIO()
    torch.save(obj, f)
    with open(os.path.join(refused, name + ".pt"), "wb") as out:
        out.write(f.getvalue())
torch.jit.script(model).save(os.path.join(refused, "torchscript.pt"))
