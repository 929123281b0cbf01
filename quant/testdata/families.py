"""Small models of each family, quantised by their own packages: families.py make DIR, then
families.py compare DIR, after the command has made DIR/NAME-plain of each DIR/NAME with
cp --dequantize bf16.

make      DIR/NAME, a model, and DIR/NAME.expect.safetensors, the weights of the model that
          the package itself makes of it without quantisation, rounded to BF16 once
compare   transformers loads DIR/NAME-plain, with those weights

compressed-tensors, transformers (FP8, MXFP4), bitsandbytes and MLX run as they are. Of
autoawq, gptqmodel and ModelOpt, which need a GPU or some gigabytes more, the functions
that pack a weight make the folder, and those that unpack it the weights.
"""

import glob
import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, CompressedTensorsConfig, DeepseekV3Config, GptOssConfig, LlamaConfig

import models
from generate import bare, stub

BF16, F16, F32, I32 = torch.bfloat16, torch.float16, torch.float32, torch.int32
SMALL = dict(vocab_size=160, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)


def load(folder, **more):
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **{"dtype": BF16, **more})
    unknown = [key for key in info["unexpected_keys"] if not key.endswith(".input_scale")]
    assert not info["missing_keys"] and not unknown and not info["mismatched_keys"], info
    return model


def expect(folder, name, weights):
    save_file({k: t.detach().to(BF16).contiguous().clone() for k, t in weights.items()}, os.path.join(folder, name + ".expect.safetensors"))


def base(folder):
    """A Llama that is not quantised, which most families start from."""
    path = os.path.join(folder, "base")
    if not os.path.exists(path):
        AutoModelForCausalLM.from_config(LlamaConfig(**SMALL)).to(BF16).save_pretrained(path)
    return path


def write(folder, name, tensors, config, quantization):
    path = os.path.join(folder, name)
    os.makedirs(path)
    save_file({k: t.contiguous() for k, t in tensors.items()}, os.path.join(path, "model.safetensors"), {"format": "pt"})
    config = {**config.to_dict(), **({"quantization_config": quantization} if quantization else {})}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    return path


def by_module(folder, name, quantization, pack, **more):
    """Writes the base with each Linear but lm_head packed: pack returns the tensors of a
    weight, and the weight that they stand for."""
    model = load(base(folder))
    tensors, weights = model.state_dict(), model.state_dict()
    for module, linear in model.named_modules():
        if isinstance(linear, nn.Linear) and module != "lm_head":
            parts, plain = pack(tensors.pop(module + ".weight").to(F32))
            assert plain.dtype == F32, plain.dtype
            tensors |= {f"{module}.{k}": t for k, t in parts.items()}
            weights[module + ".weight"] = plain
    write(folder, name, tensors, model.config, quantization)
    expect(folder, name, weights)


def compressed_tensors(folder):
    for preset, fmt in (
        ("FP8", "float-quantized"), ("FP8_DYNAMIC", "float-quantized"), ("FP8_BLOCK", "float-quantized"), ("W8A8", "int-quantized"),
        ("NVFP4A16", "nvfp4-pack-quantized"), ("MXFP4A16", "mxfp4-pack-quantized"), ("MXFP8A16", "mxfp8-quantized"),
        ("W3A16", "pack-quantized"), ("W4A16", "pack-quantized"), ("W4A16_ASYM", "pack-quantized"), ("W8A16", "pack-quantized"),
    ):
        name = "ct-" + preset.lower().replace("_", "-")
        path = os.path.join(folder, name)
        models.reference(base(folder), preset, fmt, path)
        expect(folder, name, load(path, quantization_config=CompressedTensorsConfig(dequantize=True)).state_dict())


def fp8(folder):
    """transformers dequantises FP8 where there is no GPU. Its op quantises without one, but
    the class around that does not."""
    from transformers.integrations.finegrained_fp8 import Fp8Quantize

    config = DeepseekV3Config(**SMALL | dict(num_key_value_heads=4), moe_intermediate_size=128, n_routed_experts=4, n_shared_experts=1, n_group=1,
                              topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1, q_lora_rank=128, kv_lora_rank=64,
                              qk_rope_head_dim=64, qk_nope_head_dim=32, v_head_dim=32)
    path = os.path.join(folder, "deepseek-base")
    AutoModelForCausalLM.from_config(config).to(BF16).save_pretrained(path)
    stored = load_file(os.path.join(path, "model.safetensors"))
    for name, more in (("fp8-block", {}), ("fp8-block-ue8m0", {"scale_fmt": "ue8m0"})):
        quantization = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128], **more}
        op = Fp8Quantize(type("Quantizer", (), {"quantization_config": type("Config", (), {"scale_fmt": None, **quantization})}))
        tensors = {}
        for key, t in stored.items():
            left = key.startswith("lm_head") or "embed" in key or key.endswith("mlp.gate.weight")
            tensors |= {key: t} if left else op._quantize_one(key, t)
        assert any(key.endswith("experts.3.down_proj.weight_scale_inv") for key in tensors)
        folder_of = write(folder, name, tensors, config, quantization)
        expect(folder, name, load(folder_of, dtype=F32).state_dict())


def mxfp4(folder):
    config = GptOssConfig(**SMALL, num_local_experts=3, num_experts_per_tok=2, head_dim=32, sliding_window=16)
    model = AutoModelForCausalLM.from_config(config).to(BF16)
    tensors = {}
    for key, t in model.state_dict().items():
        if key.endswith(("gate_up_proj", "down_proj")):
            e, i, rows = t.shape
            tensors[key + "_blocks"] = torch.randint(0, 256, (e, rows, i // 32, 16), dtype=torch.uint8)
            tensors[key + "_scales"] = torch.randint(110, 130, (e, rows, i // 32), dtype=torch.uint8)
        else:
            tensors[key] = t
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    path = write(folder, "gpt-oss", tensors, config, quantization)
    expect(folder, "gpt-oss", load(path).state_dict())


def bitsandbytes(folder):
    import bitsandbytes.functional as bnb

    for name, config in (
        ("bnb-nf4", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")),
        ("bnb-nf4-nested", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
        ("bnb-fp4", dict(load_in_4bit=True, bnb_4bit_quant_type="fp4")),
        ("bnb-int8", dict(load_in_8bit=True)),
    ):
        model = load(base(folder), quantization_config=BitsAndBytesConfig(**config), device_map="cpu")
        model.save_pretrained(os.path.join(folder, name))
        weights = {k: t for k, t in model.state_dict().items() if ".weight." not in k and not k.endswith((".SCB", ".weight_format"))}
        for module, linear in model.named_modules():
            if hasattr(linear.__dict__.get("_parameters", {}).get("weight"), "quant_state"):
                linear.weight.quant_state.dtype = F32
                weights[module + ".weight"] = bnb.dequantize_4bit(linear.weight.data, linear.weight.quant_state) + 0.0  # code 8 of FP4
            elif hasattr(linear, "SCB") or hasattr(linear.__dict__.get("_parameters", {}).get("weight"), "SCB"):
                weights[module + ".weight"] = bnb.int8_vectorwise_dequant(linear.weight.data, linear.weight.SCB)
        expect(folder, name, weights)


def mlx(folder):
    import mlx.core as mx
    import mlx_lm.utils as lm
    import numpy as np

    for bits, group in ((4, 64), (3, 32), (8, 128)):
        name = f"mlx-{bits}"
        model, config = lm.load_model(Path(base(folder)))
        model, config = lm.quantize_model(model, config, group, bits)
        lm.save_model(os.path.join(folder, name), model)
        lm.save_config(config, os.path.join(folder, name, "config.json"))
        stored = mx.load(os.path.join(folder, name, "model.safetensors"))
        weights = {}
        for key, t in stored.items():
            stem = key.removesuffix("weight")
            if stem + "scales" in stored:
                t = mx.dequantize(t, stored[stem + "scales"].astype(mx.float32), stored[stem + "biases"].astype(mx.float32), group, bits, stream=mx.cpu)
            if key.endswith("weight"):
                weights[key] = torch.from_numpy(np.array(t.astype(mx.float32)))
        expect(folder, name, weights)


def gptq(folder):
    bare("gptqmodel", "gptqmodel.utils", "gptqmodel.quantization")
    import logging
    stub("gptqmodel.utils.logger", setup_logger=lambda: logging.getLogger())
    stub("gptqmodel.utils.torch", HAS_NPU=False)
    from gptqmodel.utils.model_dequant import _correct_gptq_v1_qzeros, _revert_gptq_v1_qzeros_correction, pack_cols, unpack_cols, unpack_rows

    for name, bits, order, fmt in (("gptq-4", 4, False, "gptq"), ("gptq-3-v2", 3, False, "gptq_v2"), ("gptq-8-order", 8, True, "gptq")):
        def pack(w, group=32):
            o, i = w.shape
            g = torch.arange(i, dtype=I32) // group
            if order:
                g = g[torch.randperm(i)]
            low = torch.stack([w[:, g == k].amin(1) for k in range(i // group)])
            high = torch.stack([w[:, g == k].amax(1) for k in range(i // group)])
            s = ((high - low) / (2**bits - 1)).to(F16)
            z = (-low / s.to(F32)).round().clamp(1, 2**bits - 1)
            q = (w.t() / s.to(F32)[g] + z[g]).round().clamp(0, 2**bits - 1)
            parts = {"qweight": pack_cols(q.t().to(I32), bits, pack_dtype=I32).t(), "qzeros": pack_cols(z.to(I32), bits, pack_dtype=I32), "scales": s, "g_idx": g}
            zeros = parts["qzeros"]
            if fmt == "gptq":
                parts["qzeros"] = _revert_gptq_v1_qzeros_correction(zeros, bits)
                zeros = _correct_gptq_v1_qzeros(parts["qzeros"], bits)
            plain = (unpack_rows(parts["qweight"], bits).to(F32) - unpack_cols(zeros, bits).to(F32)[g]) * s.to(F32)[g]
            assert torch.allclose(plain.t(), w, atol=2 * s.max().item())
            return parts, plain.t()

        by_module(folder, name, {"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": order, "sym": False, "checkpoint_format": fmt}, pack)


def awq(folder):
    bare("awq", "awq.utils", "awq.modules", "awq.modules.linear")
    stub("awq.utils.module", try_import=lambda name: (None, ""))
    stub("awq.utils.utils", get_best_device=lambda: "cpu")
    sys.modules["awq.modules.triton.gemm"] = None
    from awq.modules.linear.gemm import WQLinear_GEMM
    from awq.utils.packing_utils import dequantize_gemm

    def pack(w, group=32):
        o, i = w.shape
        x = w.reshape(o, i // group, group)
        s = ((x.amax(-1) - x.amin(-1)) / 15).to(F16).to(F32)
        z = (-x.amin(-1) / s).round().clamp(0, 15)
        linear = nn.Linear(i, o, bias=False)
        q = ((x / s.unsqueeze(-1)).round() + z.unsqueeze(-1)).clamp(0, 15)
        linear.weight.data = ((q - z.unsqueeze(-1)) * s.unsqueeze(-1)).reshape(o, i)  # it rounds, but does not clamp
        m = WQLinear_GEMM.from_linear(linear, 4, group, scales=s.t(), zeros=z.t())
        parts = {"qweight": m.qweight, "qzeros": m.qzeros, "scales": m.scales}
        plain = dequantize_gemm(m.qweight, m.qzeros, m.scales.to(F32), 4, group).t()
        assert torch.allclose(plain, w, atol=2 * s.max().item())
        return parts, plain

    by_module(folder, "awq", {"quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 32, "zero_point": True}, pack)


def modelopt(folder):
    from generate import stub_modelopt

    tensor = stub_modelopt()

    def pack(w):
        q, s, s2 = tensor.quantize(w, 16)
        plain = q.dequantize(F32, scale=s, double_scale=s2, block_sizes={-1: 16})
        plain[torch.stack((q._quantized_data & 15, q._quantized_data >> 4), -1).flatten(-2) == 8] = -0.0  # its table has +0
        assert torch.allclose(plain, w, atol=w.abs().max().item() / 6)
        return {"weight": q._quantized_data, "weight_scale": s, "weight_scale_2": s2, "input_scale": torch.tensor(0.5)}, plain

    by_module(folder, "modelopt-nvfp4", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
                                         "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 16, "type": "float"}, "targets": ["Linear"]}}}, pack)
    from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor

    def pack8(w):
        s = MXFP8QTensor.get_weights_scaling_factor(w)
        q = MXFP8QTensor.quantize_with_scale(w, s)
        return {"weight": q, "weight_scale": s}, MXFP8QTensor(w.shape, F32, q).dequantize(F32, scale=s)

    by_module(folder, "modelopt-mxfp8", {"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["lm_head"],
                                         "config_groups": {"group_0": {"weights": {"num_bits": 8, "group_size": 32, "type": "float"}, "targets": ["Linear"]}}}, pack8)


def make(folder):
    torch.manual_seed(0)
    for family in (compressed_tensors, fp8, mxfp4, bitsandbytes, mlx, gptq, awq, modelopt):
        family(folder)


def compare(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.expect.safetensors"))):
        name = os.path.basename(path).removesuffix(".expect.safetensors")
        want = load_file(path)
        plain = os.path.join(folder, name + "-plain")
        stored = load_file(os.path.join(plain, "model.safetensors"))
        assert all(t.dtype == BF16 for t in stored.values()), name
        model = load(plain)
        assert not hasattr(model.config, "quantization_config"), name
        got = model.state_dict()
        assert got.keys() == want.keys(), (name, got.keys() ^ want.keys())
        for key, t in got.items():
            differ = t.to(BF16).view(torch.int16) != want[key].view(torch.int16)  # some routers become F32
            assert not differ.any(), f"{name}: {key}: {differ.sum().item()} of {t.numel()} elements differ"
        print(name, len(got), "tensors equal")


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](sys.argv[2])
