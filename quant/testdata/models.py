"""Small models, quantised by their own frameworks: models.py make DIR, then models.py
compare DIR, after package quant has written its folders.

make      DIR/base, and DIR/ref-SCHEME: base quantised by compressed-tensors
compare   DIR/ours-SCHEME has the logits of DIR/ref-SCHEME; DIR/back-SCHEME, which is
          ours-SCHEME dequantised to BF16, has the weights of the decompressed ref-SCHEME
"""

import os
import sys

import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import QuantizationConfig, QuantizationStatus, apply_quantization_config, preset_name_to_scheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam, maybe_pad_tensor_for_block_quant
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

SCHEMES = {
    "fp8-channel": ("FP8_DYNAMIC", "float-quantized"), "fp8-block": ("FP8_BLOCK", "float-quantized"),
    "nvfp4": ("NVFP4A16", "nvfp4-pack-quantized"), "mxfp4": ("MXFP4A16", "mxfp4-pack-quantized"),
    "int4": ("W4A16", "pack-quantized"), "int8": ("W8A16", "pack-quantized"),
}
FUSED = (("gate_proj", "up_proj"), ("q_proj", "k_proj", "v_proj"))
IDS = torch.arange(1, 30)[None]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)


def groups(w, args):
    strategy = getattr(args.strategy, "value", args.strategy)
    if strategy == "tensor":
        return w.reshape(1, -1)
    if strategy == "block":
        h, l = args.block_structure
        p = maybe_pad_tensor_for_block_quant(w, (h, l))
        return p.reshape(p.shape[0] // h, h, p.shape[1] // l, l).transpose(1, 2).flatten(-2, -1)
    return w.unsqueeze(-2) if strategy == "channel" else w.unflatten(-1, (-1, args.group_size))


def reference(base, preset, fmt, folder):
    """What llmcompressor does without calibration data."""
    model = load(base)
    scheme = preset_name_to_scheme(preset, ["Linear"])
    scheme.format = fmt
    apply_quantization_config(model, QuantizationConfig(config_groups={"g": scheme}, ignore=["lm_head"], format=fmt))
    for name, module in model.named_modules():
        if getattr(module, "quantization_scheme", None) is None:
            continue
        args, w, shared = module.quantization_scheme.weights, module.weight.data, None
        if hasattr(module, "weight_global_scale"):
            parent, leaf = name.rsplit(".", 1)
            family = next((f for f in FUSED if leaf in f), (leaf,))
            most = torch.stack([model.get_submodule(f"{parent}.{f}").weight.data.abs().max() for f in family]).max().reshape(1)
            shared = generate_gparam(-most, most)
            module.weight_global_scale.data.copy_(shared)
        x = groups(w, args)
        scale, zero = calculate_qparams(torch.amin(x, -1), torch.amax(x, -1), args, global_scale=shared)
        module.weight_scale.data.copy_(scale)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data.copy_(zero)
        module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(folder)


def make(folder):
    torch.manual_seed(0)
    base = os.path.join(folder, "base")
    config = LlamaConfig(vocab_size=320, hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, max_position_embeddings=64)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(base)
    for scheme, (preset, fmt) in SCHEMES.items():
        reference(base, preset, fmt, os.path.join(folder, "ref-" + scheme))


def compare(folder):
    for scheme, (_, fmt) in SCHEMES.items():
        ours, ref = (load(os.path.join(folder, f"{kind}-{scheme}"))(IDS).logits for kind in ("ours", "ref"))
        assert torch.equal(ours, ref), f"{scheme}: logits differ by up to {(ours - ref).abs().max().item()}"
        back = load(os.path.join(folder, "back-" + scheme)).state_dict()
        original = load(os.path.join(folder, "base")).state_dict()
        stored = load_file(os.path.join(folder, "back-" + scheme, "model.safetensors"))
        assert all(t.dtype == torch.bfloat16 for t in stored.values())
        changed = 0
        for name, t in back.items():
            assert torch.equal(t, stored[name]), f"{scheme}: {name} is not what the file holds"
            changed += not torch.equal(t, original[name])
        assert changed == 14, f"{scheme}: {changed} of 14 weights are quantised"
        if fmt != "float-quantized":  # with inputs that stay as they are, the logits are those of the numbers
            assert torch.equal(load(os.path.join(folder, "back-" + scheme))(IDS).logits, ref), f"{scheme}: logits of the dequantised model"
        print(scheme, "equal")


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](sys.argv[2])
