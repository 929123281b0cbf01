"""The contestant with PyTorch: whole jobs.

It runs under an interpreter that has torch and safetensors.
"""

import os

import torch
from protocol import serve
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.distributed import checkpoint
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


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


def merge(file, adapter, target):
    """Adds an adapter of rank 16 and alpha 32, computed in float32."""

    def run():
        tensors = {}
        with safe_open(file, "pt") as f, safe_open(os.path.join(adapter, "adapter_model.safetensors"), "pt") as a:
            adapted = set(a.keys())
            for name in f.keys():
                t = f.get_tensor(name)
                stem = "base_model.model." + name.removesuffix(".weight")
                if stem + ".lora_A.weight" in adapted:
                    down, up = a.get_tensor(stem + ".lora_A.weight"), a.get_tensor(stem + ".lora_B.weight")
                    t = torch.addmm(t.float(), up.float(), down.float(), alpha=32 / 16).to(t.dtype)
                tensors[name] = t
        save_file(tensors, target)
        sync(target, os.path.dirname(target))

    return run


def save_distcp(file, folder):
    def run():
        checkpoint.save(load_file(file), storage_writer=checkpoint.FileSystemWriter(folder, thread_count=4), no_dist=True)

    return run


def from_distcp(folder, target):
    def run():
        dcp_to_torch_save(folder, target)
        sync(target, os.path.dirname(target))

    return run


def diff(file, other):
    def run():
        found = {}
        with safe_open(file, "pt") as f, safe_open(other, "pt") as g:
            for name in f.keys():
                a, b = f.get_tensor(name).float(), g.get_tensor(name).float()
                d = (a - b).abs()
                found[name] = [d.count_nonzero(), d.max(), d.norm() / b.norm()]
        return found

    return run


def transpose(dtype, side):
    src = torch.ones(int(side), int(side)).to(getattr(torch, dtype))
    dst = torch.empty_like(src)
    
    def run():
        dst.copy_(src.t())

    return run


TASKS = {
    "to-bf16": to_bf16,
    "stats": stats,
    "consolidate": consolidate,
    "merge": merge,
    "save-distcp": save_distcp,
    "from-distcp": from_distcp,
    "diff": diff,
    "transpose": transpose,
}

serve(TASKS)
