"""Writes distributed checkpoints of torch.distributed.checkpoint, as training jobs save
them, and next to each a safetensors file with its tensors, whole.

    python generate.py FOLDER [SEED]

Needs testdata/requirements-torch.txt of the repository.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.filesystem import SerializationFormat
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

warnings.filterwarnings("ignore")
folder = sys.argv[1]
seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]


def bits(dtype, *shape):
    """A tensor of random bits; of bools, 0 and 1."""
    width = torch.empty((), dtype=dtype).element_size()
    count = torch.Size(shape).numel()
    raw = torch.randint(0, 2 if dtype == torch.bool else 256, (count * width,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def floats(*shape):
    return torch.randn(shape)


def whole():
    """The tensors, and how each is dealt out over a mesh of one and of two dimensions."""
    torch.manual_seed(seed)
    rows, columns, both, same = Shard(0), Shard(1), (Shard(0), Shard(1)), Replicate()
    tensors = {
        "model.rows": (floats(8, 3), rows, (rows, same)),
        "model.columns": (floats(3, 8), columns, (same, columns)),
        "model.uneven_rows": (floats(7, 2), rows, (rows, rows)),
        "model.uneven_columns": (floats(3, 6), columns, both),
        "model.few_rows": (floats(3, 2), rows, (rows, columns)),
        "model.mesh": (floats(5, 6), rows, both),
        "model.twisted": (floats(6, 5), columns, (Shard(1), Shard(0))),
        "model.deep": (floats(2, 3, 4, 5), Shard(2), (Shard(3), Shard(1))),
        "model.replicated": (floats(2, 2), same, (same, same)),
        "model.empty": (floats(0, 3), rows, (rows, same)),
        "model.scalar": (floats(), same, (same, same)),
    }
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        if name in ("float32", "float16", "int64"):
            tensors["dtypes." + name] = (bits(dtype, 6, 2), rows, (columns, rows))
        else:
            tensors["dtypes." + name] = (bits(dtype, 6, 2), None, None)
    return tensors


def nested(flat):
    out = {}
    for name, value in flat.items():
        parts = name.split(".")
        at = out
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = value
    return out


def state_of(meshes, placement):
    flat = {}
    for name, (t, *placements) in whole().items():
        p = placements[placement]
        if p is None:
            flat[name] = t
            continue
        mesh = meshes[placement]
        flat[name] = distribute_tensor(t, mesh, p if isinstance(p, tuple) else [p])
    state = nested(flat)
    state["optimizer"] = {
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": flat["model.rows"] * 2}},
        "param_groups": [{"lr": 0.125, "betas": (0.5, 0.75), "params": [0]}],
    }
    state["args"] = argparse.Namespace(lr=0.1)
    state["path"] = pathlib.PurePosixPath("a/b")
    state["step"] = 12
    state["list"] = [torch.ones(2), 3, {"t": torch.zeros(1, 2)}]
    state["views"] = {
        "transposed": whole()["model.rows"][0].t(),
        "channels_last": whole()["model.deep"][0].contiguous(memory_format=torch.channels_last),
        "slice": whole()["model.rows"][0][::2, 1:],
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    }
    return state


def expected():
    flat = {name: t for name, (t, *_) in whole().items()}
    flat |= {
        "optimizer.state.0.step": torch.tensor(3.0), "optimizer.state.0.exp_avg": flat["model.rows"] * 2,
        "list.0": torch.ones(2), "list.2.t": torch.zeros(1, 2),
        "views.transposed": flat["model.rows"].t(), "views.channels_last": flat["model.deep"].clone(),
        "views.slice": flat["model.rows"][::2, 1:], "views.parameter": torch.ones(2, 2),
    }
    return {name: t.clone().contiguous() for name, t in flat.items()}


SAVED = {
    "ranks": (0, {}),
    "mesh": (1, {}),
    "files": (1, {"single_file_per_rank": False}),
    "threads": (0, {"thread_count": 2}),
    "safetensors": (0, {"serialization_format": SerializationFormat.SAFETENSORS}),
}
NOT_CONTIGUOUS = {"safetensors": ("transposed", "channels_last", "slice")}  # which that format refuses


def alone(rank, world):
    """The tensors of ranks that save without communicating: each also has one of its own."""
    torch.manual_seed(seed + 1)
    tensors = {"rows": floats(7, 5), "one_row": floats(1, 3), "replicated": torch.arange(5), "scalar": floats()}
    return tensors | {f"own.{r}": torch.full((3,), float(r)) for r in range(world) if rank in (r, None)}


def run(rank, world, rendezvous):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    meshes = [init_device_mesh("cpu", (world,)), init_device_mesh("cpu", (2, world // 2))]
    for name, (placement, options) in SAVED.items():
        state = state_of(meshes, placement)
        for view in NOT_CONTIGUOUS.get(name, ()):
            del state["views"][view]
        dcp.save(state, storage_writer=FileSystemWriter(os.path.join(folder, name), **options))
    state = alone(rank, world)
    for name in ("rows", "one_row"):
        state[name] = distribute_tensor(state[name], meshes[1], [Replicate(), Shard(0)])
    dcp.save(state | {"rank": rank}, storage_writer=FileSystemWriter(os.path.join(folder, "alone")), use_collectives=False)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        torch.multiprocessing.spawn(run, (4, os.path.join(tmp, "rendezvous")), nprocs=4)
    dcp.save({"model": {"w": floats(3), "b": torch.ones(())}, "epoch": 1},
             storage_writer=FileSystemWriter(os.path.join(folder, "one")))
    loaded = {"model": {"w": torch.zeros(3), "b": torch.zeros(())}}
    dcp.load(loaded, checkpoint_id=os.path.join(folder, "one"))
    save_file({"model.w": loaded["model"]["w"], "model.b": loaded["model"]["b"]}, os.path.join(folder, "one.safetensors"))
    save_file(alone(None, 4), os.path.join(folder, "alone.safetensors"))
    tensors = expected()
    for name in SAVED:
        left_out = ["views." + view for view in NOT_CONTIGUOUS.get(name, ())]
        save_file({k: t for k, t in tensors.items() if k not in left_out}, os.path.join(folder, name + ".safetensors"))
