#!/usr/bin/env python3
"""Makes the files in this folder: models whose tensors share memory, saved by
safetensors.torch.save_model and, in shards, by huggingface_hub.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install torch==2.15.0 safetensors==0.8.0 numpy==2.4.6 packaging==26.3 huggingface_hub==2.4.0
    /tmp/venv/bin/python testdata/tied/generate.py

<name>.safetensors is what save_model writes, with one name for each data and the
others in the metadata. state.json lists for each model all names of its state_dict,
with the name that save_model kept. sharded/ is what save_torch_state_dict writes of
the model "tied": its index alone has the other names. `generate.py check PATH NAME`
loads a file with load_model, or a folder with load_torch_model, into a new model and
compares it with the one called NAME.
"""

import json
import sys
from pathlib import Path

import torch
from huggingface_hub import load_torch_model, save_torch_state_dict
from safetensors.torch import load_model, save_model

HERE = Path(__file__).parent


class Tied(torch.nn.Module):
    """A language model in small: the embedding is the head, and two layers are one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embed = torch.nn.Embedding(6, 4)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.layers.append(self.layers[0])
        self.lm_head = torch.nn.Linear(4, 6, bias=False)
        self.lm_head.weight = self.embed.weight


class Untied(torch.nn.Module):
    """Nothing is shared: equal values are not the same memory."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(3))
        self.b = torch.nn.Parameter(torch.ones(3))


SHARD = 100  # bytes

MODELS = {"tied": Tied, "untied": Untied}


def main():
    state = {}
    for name, model in MODELS.items():
        model = model()
        # Of several metadata keys, the package writes an order that differs from
        # run to run. The header is written again with the keys sorted.
        path = HERE / f"{name}.safetensors"
        save_model(model, str(path), metadata={"format": "pt"})
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
        kept = {}
        for key, tensor in sorted(model.state_dict().items()):
            first = kept.setdefault(tensor.data_ptr(), key)
            state.setdefault(name, {})[key] = first
    (HERE / "sharded").mkdir(exist_ok=True)
    save_torch_state_dict(Tied().state_dict(), HERE / "sharded", max_shard_size=SHARD)
    (HERE / "state.json").write_text(json.dumps(state, indent=2) + "\n")


def check(path, name):
    want, got = MODELS[name](), MODELS[name]()
    for p in got.parameters():
        torch.nn.init.zeros_(p)
    if Path(path).is_dir():
        load_torch_model(got, path)
    else:
        load_model(got, path)
    for key, tensor in want.state_dict().items():
        assert torch.equal(tensor, got.state_dict()[key]), key


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(*sys.argv[2:])
    else:
        main()
