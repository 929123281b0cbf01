"""The contestants that load files of safetensors in other ways than load_file.

It runs under an interpreter that has them, PyTorch, numpy and ml_dtypes.
"""

import ml_dtypes  # noqa: F401 - teaches numpy the dtype bfloat16
from protocol import serve
from safetensors import safe_open


def reference(backend):
    def load(file):
        def run():
            with safe_open(file, "numpy", backend=backend) as f:
                return {name: f.get_tensor(name) for name in f.keys()}

        return run

    return load


def runai(file):
    from runai_model_streamer import SafetensorsStreamer

    def run():
        with SafetensorsStreamer() as s:
            s.stream_file(file)
            return dict(s.get_tensors())

    return run


def fastsafetensors(file):
    import torch
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    def run():
        loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
        loader.add_filenames({0: [file]})
        buffer = loader.copy_files_to_device()
        return loader, buffer, {name: buffer.get_tensor(name) for name in buffer.key_to_rank_lidx}

    return run


serve(
    {
        "safetensors-0.9-mmap": reference("mmap"),
        "safetensors-0.9-pread": reference("pread"),
        "runai": runai,
        "fastsafetensors": fastsafetensors,
    }
)
