"""Loads a distributed checkpoint with PyTorch, in one process, and compares it bit by bit
with a safetensors file.

    python load.py FOLDER... FILE

Needs testdata/requirements-torch.txt of the repository.
"""

import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader

warnings.filterwarnings("ignore")
*folders, file = sys.argv[1:]
want = load_file(file)
for folder in folders:
    got = {name: torch.ones_like(t) for name, t in want.items()}
    dcp.load(got, storage_reader=HuggingFaceStorageReader(folder), no_dist=True)
    for name, t in want.items():
        assert got[name].dtype == t.dtype and got[name].shape == t.shape, name
        assert got[name].contiguous().flatten().view(torch.uint8).equal(t.contiguous().flatten().view(torch.uint8)), (folder, name)
