"""The contestants that turn a quantised model into one of BF16.

It runs under an interpreter that has compressed-tensors.
"""

import os

import torch
from compressed_tensors.entrypoints.convert import convert_checkpoint
from compressed_tensors.entrypoints.convert.converters import CompressedTensorsDequantizer
from protocol import serve
from safetensors import safe_open
from safetensors.torch import save_file


def sync(folder):
    for name in [*(os.path.join(folder, file) for file in os.listdir(folder)), folder]:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def library(folder, target):
    """The converter of compressed-tensors itself."""

    def run():
        convert_checkpoint(folder, target, CompressedTensorsDequantizer(folder))
        sync(target)

    return run


def loop(folder, target):
    """What one writes by hand for blocks of 128 by 128: number times scale."""

    def run():
        tensors = {}
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as f:
            names = set(f.keys())
            for name in f.keys():
                if name.endswith("_scale") and name.removesuffix("_scale") in names:
                    continue
                t = f.get_tensor(name)
                if name + "_scale" in names:
                    scale = f.get_tensor(name + "_scale").float()
                    scale = scale.repeat_interleave(128, 0)[: t.shape[0]].repeat_interleave(128, 1)[:, : t.shape[1]]
                    t = (t.float() * scale).to(torch.bfloat16)
                tensors[name] = t
        os.makedirs(target)
        save_file(tensors, os.path.join(target, "model.safetensors"))
        sync(target)

    return run


serve({"library": library, "loop": loop})
