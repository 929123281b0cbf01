"""Saves tensors as the ranks of a job do: ranks.py SPEC WHOLE DIR, three arguments for each job.

SPEC is JSON: {"mesh": [2, 3], "placements": {NAME: ["S0", "R"]}}. Tensors of WHOLE without
placements are plain ones. DIR gets model_world_size_W_rank_R.pt of every rank. PyTorch's process
group for tests stands for the other ranks: distribute_tensor cuts without a message if no rank
is the source. Needs testdata/requirements-torch.txt of the repository.
"""

import json
import math
import os
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore


def placement(text):
    return Replicate() if text == "R" else Shard(int(text[1:]))


def save(spec, whole, folder):
    with open(spec) as f:
        spec = json.load(f)
    tensors = load_file(whole)
    world = math.prod(spec["mesh"])
    os.makedirs(folder)
    for rank in range(world):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
        mesh = init_device_mesh("cpu", tuple(spec["mesh"]))
        state = {}
        for name, tensor in tensors.items():
            if name in spec["placements"]:
                placements = [placement(p) for p in spec["placements"][name]]
                tensor = distribute_tensor(tensor, mesh, placements, src_data_rank=None)
            state[name] = tensor
        torch.save(state, os.path.join(folder, f"model_world_size_{world}_rank_{rank}.pt"))
        dist.destroy_process_group()


args = sys.argv[1:]
for i in range(0, len(args), 3):
    save(*args[i : i + 3])
