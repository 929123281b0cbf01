"""The contestant with PyTorch: whole jobs.

It runs under an interpreter that has torch and safetensors.
"""

import os

import torch
from protocol import serve
from safetensors import safe_open
from safetensors.torch import save_file
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files


def sync(*names):
    for name in names:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def to_bf16(file, target):
    def run():
        with safe_open(file, "pt") as f:
            tensors = {name: f.get_tensor(name).to(torch.bfloat16) for name in f.keys()}
        save_file(tensors, target)
        sync(target, os.path.dirname(target))

    return run


def stats(file):
    def run():
        table = {}
        with safe_open(file, "pt") as f:
            for name in f.keys():
                t = f.get_tensor(name).float()
                table[name] = [t.min(), t.max(), t.mean(), t.std(), t.count_nonzero(), t.isnan().sum(), t.isinf().sum(), t.histc(50)]
        return table

    return run


def consolidate(folder, target):
    names = set()
    for file in os.listdir(folder):
        with safe_open(os.path.join(folder, file), "pt") as f:
            names.update(f.keys())

    def run():
        consolidate_safetensors_files(folder, target, dict.fromkeys(sorted(names), 1))
        sync(*(os.path.join(target, file) for file in os.listdir(target)), target)

    return run


TASKS = {"to-bf16": to_bf16, "stats": stats, "consolidate": consolidate}

serve(TASKS)
