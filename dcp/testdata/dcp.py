"""The PyTorch side of the tests TestTorch… of package dcp.

    dcp.py save SPEC FULL DIR...      a job saves the tensors of FULL to DIR
    dcp.py load SPEC FULL DIR...      a job loads DIR and finds the tensors of FULL
    dcp.py whole FULL                 writes whole.safetensors

FULL is a file of whole tensors. SPEC is a JSON object: "mesh" is the shape of the
mesh, and with it the number of ranks; "placements" has for some tensors a list like
["S0", "R"], a placement for each dimension of the mesh. All others are plain tensors.
Each rank is a process of its own; they talk over gloo. Several jobs run one after
another.

The files next to this script are made in its folder with
    python dcp.py whole whole.safetensors
    python dcp.py save mesh.json whole.safetensors mesh
They are the same each time, but for the order of the keys in the metadata.
"""

import json
import logging
import math
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def placement(text):
    return Replicate() if text == "R" else Shard(int(text[1:]))


def state_dict(spec, full, mesh):
    """Returns the tensors as the ranks of the mesh hold them."""
    state = {}
    for name, tensor in sorted(full.items()):
        if name in spec["placements"]:
            placements = [placement(p) for p in spec["placements"][name]]
            # src_data_rank=None: every rank takes its part of its own copy.
            tensor = distribute_tensor(tensor, mesh, placements, src_data_rank=None)
        state[name] = tensor
    return state


def local(tensor):
    """Returns the elements of a tensor that this rank holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def same_bits(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return a.contiguous().flatten().view(torch.uint8).equal(b.contiguous().flatten().view(torch.uint8))


def save(spec, full, directory, mesh):
    writer = HuggingFaceStorageWriter(directory, save_distributed=True)
    dcp.save(state_dict(spec, full, mesh), storage_writer=writer)


def load(spec, full, directory, mesh):
    want = state_dict(spec, full, mesh)
    got = state_dict(spec, {name: torch.empty_like(t).fill_(1) for name, t in full.items()}, mesh)
    dcp.load(got, storage_reader=HuggingFaceStorageReader(directory))
    wrong = [name for name in want if not same_bits(local(got[name]), local(want[name]))]
    if wrong:
        raise AssertionError(f"rank {dist.get_rank()}: not what was saved: {wrong}")


def rank(number, spec, command, full, directory, store):
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    size = math.prod(spec["mesh"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=size)
    mesh = init_device_mesh("cpu", tuple(spec["mesh"]))
    command(spec, load_file(full), directory, mesh)
    dist.destroy_process_group()


def jobs(command, *args):
    """Runs a command on all ranks of a job and waits for them, job by job."""
    for spec, full, directory in zip(args[::3], args[1::3], args[2::3], strict=True):
        with open(spec) as f:
            spec = json.load(f)
        with tempfile.TemporaryDirectory() as temp:
            store = os.path.join(temp, "store")
            # fork, as importing torch takes seconds.
            mp.start_processes(rank, (spec, command, full, directory, store), nprocs=math.prod(spec["mesh"]), start_method="fork")


def whole(file):
    def counting(dtype, *shape):
        return torch.arange(1, 1 + math.prod(shape)).reshape(shape).to(dtype)

    save_file(
        {
            "embed.weight": counting(torch.bfloat16, 6, 4),
            "layers.0.weight": counting(torch.float32, 5, 7),
            "layers.1.weight": counting(torch.float32, 7, 3),
            "layers.0.bias": counting(torch.float32, 3),
            "cube": counting(torch.int32, 3, 2, 5),
            "rows": counting(torch.int64, 5),
            "mask": counting(torch.int64, 3, 3) % 2 == 0,
            "norm": counting(torch.float16, 4),
            "tiny": counting(torch.float32, 1, 4),
            "none": counting(torch.float32, 0, 3),
            "scale": torch.tensor(0.125),
            '\u00e9\u2028"\U0001f9e0': counting(torch.uint8, 2),
        },
        file,
    )


def main(command, *args):
    if command == "save":
        jobs(save, *args)
    elif command == "load":
        jobs(load, *args)
    elif command == "whole":
        whole(*args)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
