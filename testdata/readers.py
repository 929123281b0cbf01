"""Reads a file with a library of Python: an adapter for `difftest -reader`.

    readers.py LIBRARY FILE

It exits with 0 if the library reads the header and all tensors of the file, with 1 if it
raises an exception. testdata/README.md has what came out.
"""

import sys


def safetensors(name):
    from safetensors import safe_open

    with safe_open(name, "numpy") as f:
        f.keys()


def mlx(name):
    import mlx.core as mx

    mx.eval(list(mx.load(name, format="safetensors").values()))


def tinygrad(name):
    from tinygrad.nn.state import safe_load

    for tensor in safe_load(name).values():
        tensor.to("PYTHON").realize()  # the device that needs no compiler


def fastsafetensors(name):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
    loader.add_filenames({0: [name]})
    files = loader.copy_files_to_device()
    for key in files.key_to_rank_lidx:
        files.get_tensor(key)


def gguf(name):
    from gguf.utility import SafetensorsLocal

    with SafetensorsLocal(name) as tensors:
        for tensor in tensors.values():
            tensor.mmap_bytes()


def runai_model_streamer(name):
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(name)
        for _ in streamer.get_tensors():
            pass


def ztensor(name):
    import ztensor

    with ztensor.open(name) as tensors:
        for tensor in tensors.values():
            tensor.tobytes()


if __name__ == "__main__":
    read = globals()[sys.argv[1].replace("-", "_")]
    try:
        read(sys.argv[2])
    except Exception as exception:
        print(f"{type(exception).__name__}: {exception}", file=sys.stderr)
        sys.exit(1)
