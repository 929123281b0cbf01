"""Makes quantised tensors of every layout, and what the reference package of each makes
of them: generate.py DIR [SEED...]. Without seeds, the small files of this folder; with some,
files of random shapes in DIR/SEED. 0 stands for the small ones. pip install -r requirements.txt, and requirements-nodeps.txt with --no-deps.

A file holds the tensors of a checkpoint, its config in the metadata, and for each tensor
NAME that they stand for the numbers as "expect NAME".
"""

import importlib.machinery
import json
import os
import random
import sys
import types

import numpy as np
import torch

SITE = next(p for p in sys.path if p.endswith("site-packages"))


def bare(*names):
    """Lets modules be imported without the code of the packages they are in."""
    for name in names:
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(SITE, *name.split("."))]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module


def stub(name, **attributes):
    module = types.ModuleType(name)
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module


from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

bare("awq", "awq.utils")
from awq.utils.packing_utils import dequantize_gemm

E4M3, E8M0, BF16, F16, F32 = torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.bfloat16, torch.float16, torch.float32
I8, I32, U8 = torch.int8, torch.int32, torch.uint8


class Case:
    """One file."""

    def __init__(self, folder, name, config):
        self.path = os.path.join(folder, name + ".safetensors")
        self.config = config
        self.tensors = {}

    def put(self, stem, **tensors):
        for name, t in tensors.items():
            self.tensors[stem + name.replace("__dot__", ".")] = t.contiguous().clone()

    def expect(self, name, t):
        assert t.dtype == F32, t.dtype
        self.tensors["expect " + name] = t.contiguous().clone()

    def save(self):
        save_file(self.tensors, self.path, {"config": json.dumps(self.config)} if self.config is not None else None)


def cdiv(a, b):
    return -(-a // b)


def codes(*shape, dtype=U8):
    """Random bytes."""
    t = torch.randint(0, 256, shape, dtype=torch.int64).to(U8)
    return t.view(dtype)


def e4m3(*shape):
    """Every code but the NaNs, whose payload is nobody's business."""
    t = codes(*shape)
    t[(t & 0x7F) == 0x7F] = 0
    return t.view(E4M3)


def words(*shape):
    return codes(*shape[:-1], 4 * shape[-1]).view(I32)


def scales(*shape, dtype=F32):
    return (torch.randn(shape) * 0.05).to(dtype)


def exponents(*shape, low=100, high=140):
    return torch.randint(low, high, shape, dtype=torch.int64).to(U8)


def quantization(method, **more):
    return {"model_type": "test", "quantization_config": {"quant_method": method, **more}}


def ct_config(fmt, **weights):
    weights = {"num_bits": 8, "type": "float", "symmetric": True, **weights}
    group = {"targets": ["Linear"], "weights": weights, "format": fmt}
    return quantization("compressed-tensors", format=fmt, config_groups={"group_0": group}, ignore=["lm_head"])


def decompress(fmt, state, **weights):
    weights = {"num_bits": 8, "type": "float", "symmetric": True, **weights}
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights), format=fmt)
    return BaseCompressor.get_value_from_registry(fmt).decompress(dict(state), scheme)["weight"]


def fp8_block(f, name, size):
    for block in ([128, 128], [16, 32]):
        o, i = (size(131), size(133)) if block[0] == 128 else (size(37), size(70))
        case = Case(f, f"{name}-{block[0]}", quantization("fp8", weight_block_size=block))
        w, s = e4m3(o, i), scales(cdiv(o, block[0]), cdiv(i, block[1]))
        case.put("a.", weight=w, weight_scale_inv=s)
        case.put("", norm__dot__weight=scales(7, dtype=BF16))
        ref = FP8BlockDequantizer(targets=["a"], weight_block_size=block, dtype=F32)
        case.expect("a.weight", ref.process({"a.weight": w, "a.weight_scale_inv": s})["a.weight"])
        case.save()


def fp8_e8m0(f, name, size):
    """Powers of two in three dtypes. The reference needs whole blocks."""
    o, i = 32 * size(2), 16 * size(3)
    for kind in ("e8m0", "u8", "f32"):
        case = Case(f, f"{name}-{kind}", quantization("fp8", weight_block_size=[32, 16], scale_fmt="ue8m0"))
        w, e = e4m3(o, i), exponents(o // 32, i // 16)
        s = {"e8m0": e.view(E8M0), "u8": e, "f32": (e.to(F32) - 127).exp2()}[kind]
        case.put("a.", weight=w, weight_scale_inv=s)
        case.expect("a.weight", Fp8Dequantize(None)._dequantize_one(w, s, F32))
        case.save()


def fp8_whole(f, name, size):
    """Without blocks in the config, a scale is for all of a matrix."""
    w, s = e4m3(size(131), size(133)), scales()
    case = Case(f, name, quantization("fp8", activation_scheme="static", weight_block_size=None))
    case.put("a.", weight=w, weight_scale_inv=s, activation_scale=scales())
    case.expect("a.weight", Fp8Dequantize(None)._dequantize_one(w, s, F32))
    case.save()


def fp8_experts(f, name, size):
    """Several matrices in one parameter. The reference takes the blocks from the grid."""
    e, o, i = size(3), 32 * size(2), 64 * size(2)
    for kind, config, grid in (
        ("block", dict(weight_block_size=[16, 32]), (o // 16, i // 32)), ("halves", dict(weight_block_size=None), (2, 1)),
        ("mx", dict(weight_block_size=[1, 32], scale_fmt="ue8m0"), (o, i // 32)), ("fp4", dict(expert_dtype="fp4"), (o, i // 32)),
    ):
        w = codes(e, o, i // 2, dtype=I8) if kind == "fp4" else e4m3(e, o, i)
        s = scales(e, *grid) if kind in ("block", "halves") else exponents(e, *grid)
        case = Case(f, f"{name}-{kind}", quantization("mxfp8" if kind == "mx" else "fp8", **config))
        case.put("mlp.experts.", gate_up_proj=w, gate_up_proj_scale_inv=s)
        if kind == "halves":
            case.put("mlp.experts.", gate_up_proj_activation_scale=scales(e))
        case.expect("mlp.experts.gate_up_proj", Fp8Dequantize(None)._dequantize_one(w, s, F32))
        case.save()


def deepseek_v4(f, name, size):
    o, i = 128, 128 * size(1)
    case = Case(f, name, {**quantization("fp8", weight_block_size=[128, 128], scale_fmt="ue8m0"), "model_type": "deepseek_v4"})
    w, e = e4m3(o, i), exponents(o // 128, i // 128).view(E8M0)
    case.put("attn.wq.", weight=w, scale=e)
    case.expect("attn.wq.weight", Fp8Dequantize(None)._dequantize_one(w, e, F32))
    o, i = size(9), 32 * size(5)
    w, e = codes(o, i // 2, dtype=I8), exponents(o, i // 32).view(E8M0)
    case.put("ffn.experts.0.w1.", weight=w, scale=e)
    case.expect("ffn.experts.0.w1.weight", Fp8Dequantize(None)._dequantize_one(w, e, F32))
    case.save()


def ct_float(f, name, size):
    for strategy in ("channel", "tensor", "block"):
        o, i = size(50), size(40)
        block = {"block_structure": [16, 32]} if strategy == "block" else {}
        w = e4m3(o, i)
        s = scales(*{"channel": (o, 1), "tensor": (1,), "block": (cdiv(o, 16), cdiv(i, 32))}[strategy], dtype=BF16)
        case = Case(f, f"{name}-{strategy}", ct_config("float-quantized", strategy=strategy, **block))
        case.put("a.", weight=w, weight_scale=s)
        if strategy == "tensor":
            case.put("a.", input_scale=scales(1, dtype=BF16))
        case.expect("a.weight", decompress("float-quantized", {"weight": w, "weight_scale": s.to(F32)}, strategy=strategy, **block))
        case.save()


def fp8_scalar(f, name, size):
    """AutoFP8, ModelOpt and FBGEMM: a product that has one meaning only."""
    for kind in ("autofp8", "modelopt", "fbgemm"):
        w, s = e4m3(size(9), size(15)), scales()
        config = quantization("fp8", activation_scheme="static", ignored_layers=["lm_head"])
        if kind == "modelopt":
            config = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
        if kind == "fbgemm":  # as FbgemmFp8Linear of transformers has it
            s = scales(len(w), 1)
            config = quantization("fbgemm_fp8", activation_scale_ub=1200.0, modules_to_not_convert=["lm_head"])
        case = Case(f, f"{name}-{kind}", config)
        case.put("a.", weight=w, weight_scale=s, input_scale=scales())
        case.put("", attn__dot__k_scale=scales())
        case.expect("a.weight", w.to(F32) * s)
        case.save()


def ct_int8(f, name, size):
    o, i = size(9), size(15)
    w, s = codes(o, i, dtype=I8), scales(o, 1, dtype=BF16)
    args = dict(type="int", strategy="channel")
    case = Case(f, name, ct_config("int-quantized", **args))
    case.put("a.", weight=w, weight_scale=s)
    case.expect("a.weight", decompress("int-quantized", {"weight": w, "weight_scale": s.to(F32)}, **args))
    case.save()


def ct_packed(f, name, size):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    for bits in range(1, 9):
        for asymmetric in (False, True):
            for group in (0, 8):
                o, i = size(37), size(5) * (group or 7)
                half = 1 << (bits - 1)
                q = torch.randint(-half, half, (o, i), dtype=torch.int64).to(I8)
                groups = i // group if group else 1
                s = scales(o, groups, dtype=random.choice((BF16, F32)))
                args = dict(num_bits=bits, type="int", symmetric=not asymmetric, strategy="group" if group else "channel")
                if group:
                    args["group_size"] = group
                state = {"weight_packed": pack_to_int32(q, bits), "weight_scale": s, "weight_shape": torch.tensor([o, i])}
                if asymmetric:
                    z = torch.randint(-half, half, (o, groups), dtype=torch.int64).to(I8)
                    state["weight_zero_point"] = pack_to_int32(z, bits, packed_dim=0)
                if bits == 4 and not asymmetric:
                    state["weight_shape"] = state["weight_shape"].to(I32)
                case = Case(f, f"{name}-{bits}{'-zero' if asymmetric else ''}{'-group' if group else ''}", ct_config("pack-quantized", **args))
                case.put("a.", **state)
                if asymmetric:
                    state["weight_zero_point"] = by_columns(state["weight_zero_point"])
                case.expect("a.weight", decompress("pack-quantized", {**state, "weight_scale": s.to(F32)}, **args))
                case.save()


def ct_asymmetric(f, name, size):
    """Zero points that are not packed."""
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    for fmt, strategy in (("int-quantized", "channel"), ("int-quantized", "tensor"), ("int-quantized", "block"), ("pack-quantized", "tensor"), ("pack-quantized", "block")):
        o, i = size(37), size(40)
        block = {"block_structure": [16, 32]} if strategy == "block" else {}
        args = dict(num_bits=8, type="int", strategy=strategy, symmetric=False, **block)
        q = codes(o, i, dtype=I8)
        grid = {"channel": (o, 1), "tensor": (1,), "block": (cdiv(o, 16), cdiv(i, 32))}[strategy]
        s, z = scales(*grid, dtype=BF16), codes(*grid, dtype=I8)
        state = {"weight": q} if fmt == "int-quantized" else {"weight_packed": pack_to_int32(q, 8), "weight_shape": torch.tensor([o, i])}
        case = Case(f, f"{name}-{fmt.split('-')[0]}-{strategy}", ct_config(fmt, **args))
        case.put("a.", **state, weight_scale=s, weight_zero_point=z)
        case.expect("a.weight", decompress(fmt, {**state, "weight_scale": s.to(F32), "weight_zero_point": z}, **args))
        case.save()


def by_columns(t):
    """The same matrix, its columns contiguous. unpack_from_int32 of compressed_tensors views
    the bytes of the transposed matrix, whose last stride must be 1; its own call of
    contiguous() does not see to that if there is one row only."""
    return t.t().clone(memory_format=torch.contiguous_format).t()


def ct_actorder(f, name, size):
    """compressed_tensors 0.9.4, quantization/lifecycle/forward.py, dequantize: the
    columns of g_idx are sorted, then scaled by group, then put back."""
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    o, group = size(9), 8
    i = group * size(6)
    for kind in ("order", "unused"):
        q = torch.randint(-8, 8, (o, i), dtype=torch.int64).to(I8)
        s = scales(o, i // group, dtype=BF16)
        g = torch.arange(i, dtype=I32) // group
        if kind == "order":
            g = g[torch.randperm(i)]
        case = Case(f, f"{name}-{kind}", ct_config("pack-quantized", num_bits=4, type="int", strategy="group", group_size=group, actorder="group"))
        case.put("a.", weight_packed=pack_to_int32(q, 4), weight_scale=s, weight_shape=torch.tensor([o, i]),
                 weight_g_idx=g if kind == "order" else torch.full((i,), -1, dtype=I32))
        perm = torch.argsort(g)
        sorted_ = (q[:, perm].to(F32).unflatten(-1, (-1, group)) * s.to(F32).unsqueeze(-1)).flatten(-2)
        case.expect("a.weight", sorted_[:, torch.argsort(perm)])
        case.save()


def ct_nvfp4(f, name, size):
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization.lifecycle.forward import dequantize

    o, i = size(9), 16 * size(6)
    w, s, g = codes(o, i // 2), e4m3(o, i // 16).abs(), torch.rand(1) * 3000 + 1
    args = dict(num_bits=4, strategy="tensor_group", group_size=16)
    case = Case(f, name, ct_config("nvfp4-pack-quantized", **args))
    case.put("a.", weight_packed=w, weight_scale=s, weight_global_scale=g, input_global_scale=torch.rand(1))
    unpacked = unpack_fp4_from_uint8(w, o, i, dtype=F32)
    case.expect("a.weight", dequantize(unpacked, s.to(F32), args=QuantizationArgs(type="float", **args), global_scale=g, dtype=F32))
    case.save()


def stub_modelopt():
    """Returns the tensor class of NVFP4."""
    bare("modelopt", "modelopt.torch", "modelopt.torch.quantization", "modelopt.torch.quantization.qtensor", "modelopt.torch.quantization.backends")
    stub("modelopt.torch.quantization.backends.utils", fp4_compatible=lambda: False)
    stub("modelopt.torch.quantization.qtensor.base_qtensor", BaseQuantizedTensor=type("Base", (), {
        "__init__": lambda self, shape, dtype, data: self.__dict__.update(metadata={"shape": shape, "dtype": dtype}, _quantized_data=data)}))
    stub("modelopt.torch.quantization.utils", reduce_amax=lambda x: x.abs().amax(), reduce_block_padding=lambda x, block_sizes: x,
         reduce_block_amax=lambda x, block_sizes: x.unflatten(-1, (-1, block_sizes[-1])).abs().amax(-1))
    sys.modules["modelopt.torch.quantization.utils"].__path__ = []
    stub("modelopt.torch.quantization.utils.numeric_utils", E2M1_MAX=6.0, E4M3_MAX=448.0, fp8_max_for_normalization=None)
    from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

    return NVFP4QTensor


def modelopt_nvfp4(f, name, size):
    NVFP4QTensor = stub_modelopt()
    o, i = size(9), 16 * size(6)
    w, s, s2 = codes(o, i // 2), e4m3(o, i // 16).abs(), torch.rand(()) / 1000
    q = NVFP4QTensor((o, i), F32, w)
    want = q.dequantize(F32, scale=s, double_scale=s2, block_sizes={-1: 16})
    for kind in ("file", "config", "weights"):
        algorithm = "W4A16_NVFP4" if kind == "weights" else "NVFP4"
        config = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": algorithm, "group_size": 16, "exclude_modules": ["lm_head"]}}
        if kind == "config":
            config = quantization("modelopt", quant_algo="NVFP4", config_groups={"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}}, ignore=["lm_head"])
        case = Case(f, f"{name}-{kind}", config)
        case.put("a.", weight=w, weight_scale=s, weight_scale_2=s2, input_scale=scales())
        case.put("", lm_head__dot__weight=scales(3, 5, dtype=BF16), attn__dot__k_proj__dot__k_scale=scales())
        # Its table has +0 for code 8.
        want[(torch.stack((w & 15, w >> 4), -1).flatten(-2)) == 8] = -0.0
        case.expect("a.weight", want)
        case.save()


def modelopt_mxfp8(f, name, size):
    stub_modelopt()
    from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor

    e, o, i = size(3), size(9), 32 * size(4)
    w, s = e4m3(o, i), exponents(o, i // 32)
    experts, powers = e4m3(e, o, i), exponents(e, o, i // 32)
    number = lambda q, by: MXFP8QTensor(q.shape, F32, q).dequantize(F32, scale=by)
    alone = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MXFP8", "group_size": 32, "exclude_modules": ["lm_head"]}}
    layers = {"a": {"quant_algo": "MXFP8", "group_size": 32}, "b": {"quant_algo": "FP8"}}
    for kind, config in (
        ("file", alone), ("mixed", quantization("modelopt", quant_algo="MIXED_PRECISION", quantized_layers=layers)),
        ("method", quantization("mxfp8", weight_block_size=[1, 32], scale_fmt="ue8m0")),
    ):
        case = Case(f, f"{name}-{kind}", config)
        case.put("a.", weight=w, weight_scale=s, bias=scales(o, dtype=BF16))
        case.expect("a.weight", number(w, s))
        case.put("mlp.experts.", gate_up_proj=experts, gate_up_proj_weight_scale=powers, gate_up_proj_input_scale=scales())
        case.expect("mlp.experts.gate_up_proj", number(experts, powers))
        case.put("", mixer__dot__k_proj__dot__weight=w, mixer__dot__k_proj__dot__weight_scale=s, mixer__dot__k_proj__dot__k_scale=scales())
        case.expect("mixer.k_proj.weight", number(w, s))
        case.save()


def gpt_oss(f, name, size):
    e, rows, i = size(3), size(9), 32 * size(4)
    case = Case(f, name, quantization("mxfp4", modules_to_not_convert=["lm_head"]))
    b, s = codes(e, rows, i // 32, 16), exponents(e, rows, i // 32)
    case.put("mlp.experts.", gate_up_proj_blocks=b, gate_up_proj_scales=s, gate_up_proj_bias=scales(e, rows, dtype=BF16))
    case.expect("mlp.experts.gate_up_proj", convert_moe_packed_tensors(b, s, dtype=F32))
    case.save()


def ct_mx(f, name, size):
    o, i = size(9), 32 * size(4)
    for bits, fmt in ((4, "mxfp4-pack-quantized"), (8, "mxfp8-quantized")):
        e = exponents(o, i // 32)
        args = dict(num_bits=bits, strategy="group", group_size=32, scale_dtype=U8)
        state = {"weight_packed": codes(o, i // 2)} if bits == 4 else {"weight": e4m3(o, i)}
        case = Case(f, f"{name}fp{bits}", ct_config(fmt, num_bits=bits, strategy="group", group_size=32))
        case.put("a.", **state, weight_scale=e)
        want = decompress(fmt, {**state, "weight_scale": e}, **args)
        if want.dtype != F32:  # bf16 holds these values
            want = want.to(F32)
        case.expect("a.weight", want)
        case.save()


def ct_mixed(f, name, size):
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32

    o, i = size(9), 16 * size(3)
    group = lambda fmt, target, **w: {"format": fmt, "targets": [target], "weights": {"symmetric": True, **w}}
    int4 = dict(num_bits=4, type="int", strategy="channel")
    int8 = dict(num_bits=8, type="int", strategy="group", group_size=16)
    case = Case(f, name, quantization("compressed-tensors", format="mixed-precision", config_groups={
        "group_0": group("pack-quantized", "re:.*up_proj$", **int4),
        "group_1": group("pack-quantized", "Linear", **int8)}))
    for module, args in (("m.up_proj.", int4), ("m.down_proj.", int8)):
        half = 1 << (args["num_bits"] - 1)
        q = torch.randint(-half, half, (o, i), dtype=torch.int64).to(I8)
        s = scales(o, i // args.get("group_size", i), dtype=BF16)
        state = {"weight_packed": pack_to_int32(q, args["num_bits"]), "weight_scale": s, "weight_shape": torch.tensor([o, i])}
        case.put(module, **state)
        case.expect(module + "weight", decompress("pack-quantized", {**state, "weight_scale": s.to(F32)}, **args))
    case.save()


def gptq(f, name, size):
    bare("gptqmodel", "gptqmodel.utils", "gptqmodel.quantization")
    import logging
    stub("gptqmodel.utils.logger", setup_logger=lambda: logging.getLogger())
    stub("gptqmodel.utils.torch", HAS_NPU=False)
    from gptqmodel.utils.model_dequant import convert_gptq_file

    for bits in (2, 3, 4, 8):
        for version in ("gptq", "gptq_v2"):
            for kind in ("", "-desc", "-whole"):
                o, i = 32 * size(2), 32 * size(3)
                group = i if kind == "-whole" else random.choice((32, 16, 64))
                groups = cdiv(i, group)
                g = torch.arange(i, dtype=I32) // group
                if kind == "-desc":
                    g = g[torch.randperm(i)]
                config = dict(bits=bits, group_size=-1 if kind == "-whole" else group, desc_act=kind == "-desc", sym=False, checkpoint_format=version)
                state = {"qweight": words(i * bits // 32, o), "qzeros": words(groups, o * bits // 32), "scales": scales(groups, o, dtype=F16), "g_idx": g}
                case = Case(f, f"{name}-{bits}{'-v2' if version != 'gptq' else ''}{kind}", quantization("gptq", **config))
                case.put("a.", **state)
                save_file({"a." + k: v.contiguous() for k, v in state.items()}, case.path)
                case.expect("a.weight", convert_gptq_file(case.path, F32, config, "cpu")["a.weight"])
                if kind == "":
                    del case.tensors["a.g_idx"]
                case.save()


def gptq_packer(f, name, size):
    """What the packer of GPTQModel writes in version 1: it lowers words of zero points by a one in each
    field, so that a zero point of 0 borrows from the next field, and its loader adds the same number."""
    import ast
    from gptqmodel.utils.model_dequant import convert_gptq_file

    with open(os.path.join(SITE, "gptqmodel", "utils", "model.py")) as source:
        tree = ast.parse(source.read())
    tree.body = [n for n in tree.body if getattr(n, "name", "") == "convert_gptq_v2_to_v1_format_module"]
    space = {"torch": torch, "BaseQuantLinear": types.SimpleNamespace, "QuantizeConfig": object,
             "log": types.SimpleNamespace(info=types.SimpleNamespace(once=lambda text: None))}
    exec(compile(tree, "model.py", "exec"), space)  # alone: its module imports most of the package

    for bits in (2, 4, 8):
        o, i, group = 32 * size(2), 32 * size(3), 32
        config = dict(bits=bits, group_size=group, desc_act=False, sym=False)
        zeros = words(i // group, o * bits // 32) & words(i // group, o * bits // 32)  # many fields are 0
        state = {"qweight": words(i * bits // 32, o), "qzeros": zeros, "scales": scales(i // group, o, dtype=F16), "g_idx": torch.arange(i, dtype=I32) // group}
        case = Case(f, f"{name}-{bits}", quantization("gptq", **config, checkpoint_format="gptq", meta={"quantizer": ["gptqmodel:7.7.0"]}))
        save_file({"a." + k: v.contiguous() for k, v in state.items()}, case.path)
        case.expect("a.weight", convert_gptq_file(case.path, F32, {**config, "checkpoint_format": "gptq_v2"}, "cpu")["a.weight"])
        module = types.SimpleNamespace(bits=bits, pack_dtype=I32, qzeros=types.SimpleNamespace(data=zeros.clone()),
                                       qzero_format=lambda format: None)
        space["convert_gptq_v2_to_v1_format_module"](module, module)
        case.put("a.", **{**state, "qzeros": module.qzeros.data})
        case.save()


def gptq_dynamic(f, name, size):
    """GPTQModel's settings of its own for some modules."""
    from gptqmodel.utils.model_dequant import convert_gptq_file

    rules = {"-:.*lm_head": {}, "+:.*up_proj$": {"bits": 8, "group_size": 32}, r"model\.layers\.0\.": {"bits": 2}, ".*": {"group_size": 64}}
    case = Case(f, name, quantization("gptq", bits=4, group_size=128, desc_act=False, sym=False, checkpoint_format="gptq", dynamic=rules))
    for module, bits, group in (("model.layers.0.up_proj.", 8, 32), ("model.layers.0.down_proj.", 2, 128), ("model.layers.1.down_proj.", 4, 64)):
        o, i = 32 * size(1), 128 * size(1)
        state = {"qweight": words(i * bits // 32, o), "qzeros": words(i // group, o * bits // 32), "scales": scales(i // group, o, dtype=F16)}
        g = torch.arange(i, dtype=I32) // group
        save_file({module + k: v.contiguous() for k, v in (state | {"g_idx": g}).items()}, case.path)
        want = convert_gptq_file(case.path, F32, dict(bits=bits, group_size=group, desc_act=False, sym=False, checkpoint_format="gptq"), "cpu")
        case.put(module, **state)
        case.expect(module + "weight", want[module + "weight"])
    case.save()


def awq(f, name, size):
    o, group = 8 * size(4), random.choice((16, 32))
    i = group * size(4)
    state = {"qweight": words(i, o // 8), "qzeros": words(i // group, o // 8), "scales": scales(i // group, o, dtype=F16)}
    case = Case(f, name, quantization("awq", version="gemm", bits=4, group_size=group, zero_point=True))
    case.put("a.", **state)
    case.expect("a.weight", dequantize_gemm(state["qweight"], state["qzeros"], state["scales"].to(F32), 4, group).t())
    case.save()


def auto_round(f, name, size):
    bare("auto_round", "auto_round.utils", "auto_round_extension", "auto_round_extension.torch")
    sys.modules["auto_round.utils"].get_packing_device = lambda device: device
    from auto_round_extension.torch import qlinear_torch, qlinear_torch_zp

    for kind, bits, module, packing in (("gptq", 4, qlinear_torch_zp, "auto_round:auto_gptq"), ("zeros", 3, qlinear_torch, "auto_round")):
        group = random.choice((32, 64))
        o, i = 32 * size(2), group * size(3)
        q, z, s = words(i * bits // 32, o), words(i // group, o * bits // 32), scales(i // group, o, dtype=F16).abs()  # its product has no -0
        config = dict(bits=bits, group_size=group, sym=False, data_type="int", packing_format=packing)
        if kind == "gptq":
            z &= 0x77777777  # it does not wrap what it stores less 1
            config |= {"bits": 8, "extra_config": {"a": {"bits": bits}, "lm_head": {"bits": 16, "data_type": "float"}}}
        layer = module.QuantLinear(bits, group, i, o, bias=False)
        layer.qweight, layer.qzeros, layer.scales = q, z, s.to(F32)
        case = Case(f, f"{name}-{kind}", quantization("auto-round", **config))
        case.put("a.", qweight=q, qzeros=z, scales=s)
        case.expect("a.weight", layer(torch.eye(i)).t())
        case.save()


def bitsandbytes(f, name, size):
    import bitsandbytes.functional as bnb

    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            o, i = size(37), size(33)
            w = torch.randn(o, i)
            q, s = bnb.quantize_4bit(w, blocksize=64, compress_statistics=nested, quant_type=kind)
            packed = s.as_dict(packed=True)
            case = Case(f, f"{name}-{kind}{'-nested' if nested else ''}", quantization("bitsandbytes", load_in_4bit=True))
            case.put("a.", weight=q)
            for key, t in packed.items():
                case.put("a.weight.", **{key.replace(".", "__dot__"): t})
            s.shape = torch.Size([o * i])  # one row: its kernel for AVX-512 is wrong for rows of 16 and 32 columns
            want = bnb.dequantize_4bit(q, s).reshape(o, i)
            want[want == 0] = 0  # its kernel has -0 for code 8, unlike its table and its other kernel
            case.expect("a.weight", want)
            case.save()
    o, i = size(9), size(15)
    q, s = codes(o, i, dtype=I8), scales(o).abs()
    case = Case(f, f"{name}-int8", quantization("bitsandbytes", load_in_8bit=True))
    case.put("a.", weight=q, SCB=s, weight_format=torch.tensor(0, dtype=U8))
    case.expect("a.weight", bnb.int8_vectorwise_dequant(q, s))
    case.save()
    for storage in (BF16, F32):  # the same bytes under another dtype, of a parameter of its own
        o, i = 8 * size(5), size(33)
        w = torch.randn(o, i)
        q, s = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", quant_storage=storage)
        case = Case(f, f"{name}-{str(storage)[6:]}", quantization("bitsandbytes", load_in_4bit=True, bnb_4bit_quant_storage=str(storage)[6:]))
        case.put("experts.", down_proj=q)
        for key, t in s.as_dict(packed=True).items():
            case.put("experts.down_proj.", **{key.replace(".", "__dot__"): t})
        s.shape = torch.Size([o * i])
        want = bnb.dequantize_4bit(q.view(U8), s).reshape(o, i)
        want[want == 0] = 0
        case.expect("experts.down_proj", want)
        case.save()


def mlx(f, name, size):
    import mlx.core as mx

    for bits in (2, 3, 4, 5, 6, 8):
        o, i = size(9), 64 * size(3)
        group = random.choice((32, 64))
        w = words(o, i * bits // 32)
        s, b = scales(o, i // group, dtype=F16), scales(o, i // group, dtype=F16)
        mode = {} if bits == 4 else {"mode": "affine"}
        section = {"group_size": group, "bits": bits, **mode}
        if bits == 8:
            section = {"group_size": 32, "bits": 4, "a": {"group_size": group, "bits": bits}, "b": False}
        case = Case(f, f"{name}-{bits}", {"quantization": section, "quantization_config": section})
        case.put("a.", weight=w.view(torch.uint32), scales=s, biases=b)
        want = mx.dequantize(mx.array(w.view(torch.uint32).numpy()), mx.array(s.to(F32).numpy()), mx.array(b.to(F32).numpy()), group_size=group, bits=bits, stream=mx.cpu)
        case.expect("a.weight", torch.from_numpy(np.array(want)))
        case.save()


def comfy(f, name, size):
    """Layers with a marker each: the kernels of ComfyUI in PyTorch."""
    from comfy_kitchen.backends.eager import quantization as kitchen

    for kind in ("float8_e4m3fn", "float8_e5m2", "int8_tensorwise", "int8_rows", "nvfp4", "mxfp8"):
        o, i = (16 * size(9), 64 * size(3)) if kind in ("nvfp4", "mxfp8") else (size(9), size(15))
        fmt = "int8_tensorwise" if kind == "int8_rows" else kind
        case = Case(f, f"{name}-{kind.replace('_', '-')}", None)
        marker = json.dumps({"format": fmt, "full_precision_matrix_mult": kind == "mxfp8"}).encode()
        case.put("a.", comfy_quant=torch.tensor(list(marker), dtype=U8))
        rows, grid = 128 * cdiv(o, 128), lambda group: 4 * cdiv(i // group, 4)
        if kind == "nvfp4":
            w, s, s2 = codes(o, i // 2), (e4m3(rows, grid(16)).view(U8) & 0x7F).view(E4M3), torch.rand(()) / 1000
            case.put("a.", weight=w, weight_scale=s, weight_scale_2=s2)
            want = kitchen.dequantize_nvfp4(w, s2, s, F32)
            # Its table has +0 for code 8.
            want[torch.stack((w >> 4, w & 15), -1).flatten(-2) == 8] = -0.0
        elif kind == "mxfp8":
            w, s = e4m3(o, i), exponents(rows, grid(32))
            case.put("a.", weight=w, weight_scale=s)
            want = kitchen.dequantize_mxfp8(w, s, F32)
        elif fmt == "int8_tensorwise":
            w, s = codes(o, i, dtype=I8), scales(o, 1) if kind == "int8_rows" else scales()
            case.put("a.", weight=w, weight_scale=s)
            want = kitchen.dequantize_int8_simple(w, s)
        else:
            w, s = e4m3(o, i), scales()
            if kind == "float8_e5m2":
                w = codes(o, i) & 0xFB  # neither infinite nor NaN
                w = w.view(torch.float8_e5m2)
            case.put("a.", weight=w, weight_scale=s, input_scale=scales())
            want = kitchen.dequantize_per_tensor_fp8(w, s, F32)
        case.expect("a.weight", want)
        case.save()


def quantize(f, name, size):
    """The other way: a weight "in", and what the presets make of it."""
    from compressed_tensors.quantization import preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam, maybe_pad_tensor_for_block_quant

    for scheme, preset, fmt in (
        ("fp8-block", "FP8_BLOCK", "float-quantized"), ("fp8-channel", "FP8_DYNAMIC", "float-quantized"),
        ("nvfp4", "NVFP4A16", "nvfp4-pack-quantized"), ("mxfp4", "MXFP4A16", "mxfp4-pack-quantized"),
        ("int4", "W4A16", "pack-quantized"), ("int8", "W8A16", "pack-quantized"),
    ):
        args = preset_name_to_scheme(preset, ["Linear"]).weights
        for dtype in (BF16, F16, F32):
            o, i = (size(130), size(131)) if scheme == "fp8-block" else (size(5), size(2) * (args.group_size or 19))
            w = (torch.randn(o, i) * 10 ** (torch.rand(o, 1) * 6 - 4)).to(dtype)
            w[0, : i // 2] = 0
            if o > 2:
                w[2] = 0
            # What the memoryless minmax observer of llmcompressor 0.14 does with a weight.
            strategy = getattr(args.strategy, "value", args.strategy)
            if strategy == "block":
                h, l = args.block_structure
                p = maybe_pad_tensor_for_block_quant(w, (h, l))
                x = p.reshape(p.shape[0] // h, h, p.shape[1] // l, l).transpose(1, 2).flatten(-2, -1)
            elif strategy == "channel":
                x = w.unsqueeze(-2)
            else:
                x = w.unflatten(-1, (-1, args.group_size))
            low, high = torch.amin(x, -1), torch.amax(x, -1)
            extra = {}
            if strategy == "tensor_group":
                most = torch.max(high.max(), -low.min()).reshape(1)
                extra["weight_global_scale"] = generate_gparam(-most, most)
            s, _ = calculate_qparams(low, high, args, global_scale=extra.get("weight_global_scale"))
            s = s.to(dtype)  # of the module's parameter
            packed = BaseCompressor.get_value_from_registry(fmt).compress(
                {"weight": w, "weight_scale": s, **extra}, QuantizationScheme(targets=["Linear"], weights=args, format=fmt))
            case = Case(f, f"{name}-{scheme}-{str(dtype)[6:]}", None)
            case.tensors["in"] = w
            for key, t in packed.items():
                case.tensors["a." + key] = t.contiguous()
            save_file(case.tensors, case.path, {"scheme": scheme})


ALL = [quantize, fp8_block, fp8_e8m0, fp8_whole, fp8_experts, deepseek_v4, ct_float, fp8_scalar, ct_int8, ct_packed, ct_asymmetric, ct_actorder, ct_nvfp4, modelopt_nvfp4,
       modelopt_mxfp8, gpt_oss, ct_mx, ct_mixed, gptq, gptq_packer, gptq_dynamic, comfy, awq, auto_round, bitsandbytes, mlx]


def main():
    folder, *seeds = sys.argv[1:]
    for name in seeds or [""]:
        seed = int(name or 0)
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for make in ALL:
            random.seed(seed)
            torch.manual_seed(seed)
            largest = (lambda n: random.randint(1, n)) if seed else (lambda n: max(1, n))
            make(os.path.join(folder, name), make.__name__.replace("_", "-"), largest)


if __name__ == "__main__":
    main()
