"""What newcomers bring: newcomers.py make DIR, then newcomers.py compare DIR, after the
command has copied DIR/NAME to DIR/to/NAME.

make      tiny models, written by PyTorch, transformers, diffusers, peft and
          sentence-transformers in the ways that they have
compare   the same packages load the copies, and all tensors are equal
"""

import copy
import json
import os
import shutil
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
sys.modules["gptqmodel"] = None  # where it is installed, peft asks for a package more

import torch
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from huggingface_hub import save_torch_state_dict
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from transformers import AutoModelForCausalLM, BertConfig, BertModel, BertTokenizer, LlamaConfig, LlamaForCausalLM

folder = sys.argv[2]
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)


def at(*names):
    return os.path.join(folder, *names)


def random(model):
    """The model with random numbers in all that training would change."""
    torch.manual_seed(len(model.state_dict()))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.normal_()
    return model.eval()


def same(got, want):
    assert got.keys() == want.keys(), got.keys() ^ want.keys()
    for name, t in want.items():
        assert got[name].dtype == t.dtype and torch.equal(got[name], t), name


# Each model is made again to compare with it.


def net():
    return random(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)))


def trained():
    model = net()
    optimizer = torch.optim.AdamW([{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters()}], betas=(0.5, 0.75), amsgrad=True)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def llama(**more):
    return random(LlamaForCausalLM(LlamaConfig(**SMALL, attention_bias=True, **more)))


def unet():
    return random(UNet2DModel(sample_size=8, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")))


ADAPTERS = {
    "plain": dict(target_modules=["q_proj", "up_proj"]),
    "more": dict(target_modules=["q_proj", "embed_tokens"], bias="all", modules_to_save=["lm_head"], use_rslora=True),
    "bias": dict(target_modules=["v_proj"], lora_bias=True),
}


def adapted(name):
    return random(get_peft_model(llama(), LoraConfig(r=4, lora_alpha=6, **ADAPTERS[name])))


def make_torch():
    torch.save(net().state_dict(), at("state.pt"))
    torch.save(net(), at("module.pt"))
    model, optimizer = trained()
    torch.save({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, at("training.ckpt"))


def compare_torch():
    for name, model in {"state": net(), "module": net(), "model": trained()[0]}.items():
        loaded = copy.deepcopy(random(model.train()))
        loaded.load_state_dict(load_file(at("to", name + ".safetensors")), strict=True)
        same(loaded.state_dict(), trained()[0].state_dict() if name == "model" else net().state_dict())
    state = {}
    with safe_open(at("to", "optimizer.safetensors"), "pt") as f:
        for name in f.keys():
            _, number, entry = name.split(".")
            state.setdefault(int(number), {})[entry] = f.get_tensor(name)
        groups = json.loads(f.metadata()["param_groups"])
    _, want = trained()
    _, got = trained()
    got.load_state_dict({"state": {i: {k: torch.zeros_like(t) for k, t in s.items()} for i, s in state.items()}, "param_groups": groups})
    got.load_state_dict({"state": state, "param_groups": groups})
    got, want = got.state_dict(), want.state_dict()
    assert json.loads(json.dumps(want["param_groups"])) == got["param_groups"]
    assert got["state"].keys() == want["state"].keys()
    for i, s in want["state"].items():
        same(got["state"][i], s)


def make_transformers():
    for path, model in {"llama": llama(), "tied": llama(tie_word_embeddings=True)}.items():
        model.save_pretrained(at(path))
        model.save_pretrained(at(path + "-shards"), max_shard_size="40KB")
        for path, size in ((path + "-bin", "1GB"), (path + "-bin-shards", "40KB")):
            model.config.save_pretrained(at(path))
            save_torch_state_dict(model.state_dict(), at(path), filename_pattern="pytorch_model{suffix}.bin", safe_serialization=False, max_shard_size=size)
    for size in ("1GB", "40KB"):
        llama().half().save_pretrained(at("llama" if size == "1GB" else "llama-shards"), variant="fp16", max_shard_size=size)


def compare_transformers():
    names = [name for name in os.listdir(at("to")) if name.startswith(("llama", "tied"))]
    assert len(names) == 10, names
    for name in names:
        want = llama(tie_word_embeddings=name.startswith("tied"))
        variant = "fp16" if name.endswith("fp16") else None
        if variant:
            want = want.half()
        model, info = AutoModelForCausalLM.from_pretrained(at("to", name), output_loading_info=True, dtype=want.dtype, variant=variant)
        assert not any(info.values()), (name, info)
        same(model.state_dict(), want.state_dict())


def make_diffusers():
    for path, safe in (("pipeline", True), ("pipeline-bin", False)):
        DDPMPipeline(unet(), DDPMScheduler()).save_pretrained(at(path), safe_serialization=safe)
        DDPMPipeline(unet().half(), DDPMScheduler()).save_pretrained(at(path), safe_serialization=safe, variant="fp16")


def compare_diffusers():
    same(DDPMPipeline.from_pretrained(at("to", "pipeline-whole"), use_safetensors=True).unet.state_dict(), unet().state_dict())
    half = DDPMPipeline.from_pretrained(at("to", "pipeline-half"), use_safetensors=True, dtype=torch.bfloat16)
    same(half.unet.state_dict(), unet().bfloat16().state_dict())
    for name, variant in (("pipeline", None), ("pipeline-bin", None), ("pipeline", "fp16"), ("pipeline-bin", "fp16")):
        pipeline = DDPMPipeline.from_pretrained(at("to", name), variant=variant, use_safetensors=True, dtype=torch.float16 if variant else None)
        same(pipeline.unet.state_dict(), (unet().half() if variant else unet()).state_dict())


def grown():
    """An adapter that was trained after tokens were added."""
    model = llama()
    model.resize_token_embeddings(70)
    torch.manual_seed(70)
    with torch.no_grad():
        for embedding in (model.get_input_embeddings(), model.get_output_embeddings()):
            embedding.weight.normal_()
    return random(get_peft_model(model, LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj"])))


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.zeros(4, 20, 12))
        self.down_proj = torch.nn.Parameter(torch.zeros(4, 12, 10))


class Mixture(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = torch.nn.Linear(12, 12)
        self.experts = Experts()


def mixed():
    parameters = ["experts.gate_up_proj", "experts.down_proj"]
    return random(get_peft_model(random(Mixture()), LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj"], target_parameters=parameters)))


def make_peft():
    grown().save_pretrained(at("adapter-grown"), save_embedding_layers=True)
    mixed().save_pretrained(at("adapter-mixed"))
    os.makedirs(at("mixture"))
    save_file(random(Mixture()).state_dict(), at("mixture", "model.safetensors"))
    for name in ADAPTERS:
        adapted(name).save_pretrained(at("adapter-" + name))
        adapted(name).save_pretrained(at("adapter-" + name + "-bin"), safe_serialization=False)


def close(got, want):
    assert got.keys() == want.keys(), got.keys() ^ want.keys()
    for key, t in want.items():
        torch.testing.assert_close(got[key], t, msg=key)


def compare_peft():
    close(load_file(at("to", "mixture", "model.safetensors")), mixed().merge_and_unload().state_dict())
    for name, want in {"merged-shards": adapted("plain"), "merged-grown": grown()}.items():
        # The variant fp16 was saved last, so that config.json has its dtype.
        model, info = AutoModelForCausalLM.from_pretrained(at("to", name), output_loading_info=True, dtype=torch.float32)
        assert not any(info.values()), (name, info)
        close(model.state_dict(), want.merge_and_unload().state_dict())
    model = AutoModelForCausalLM.from_pretrained(at("to", "merged-half"), dtype=torch.bfloat16)
    want = adapted("plain").merge_and_unload().state_dict()
    same(model.state_dict(), {k: load_file(at("to", "merged-adapter-plain.safetensors"))[k].bfloat16() for k in want})
    for name in ADAPTERS:
        base = llama()
        want, merged = adapted(name), adapted(name).merge_and_unload().state_dict()
        for path in ("adapter-" + name, "adapter-" + name + "-bin"):
            same(PeftModel.from_pretrained(copy.deepcopy(base), at("to", path)).state_dict(), want.state_dict())
            got = load_file(at("to", "merged-" + path + ".safetensors"))
            assert got.keys() == merged.keys()
            for key, t in merged.items():
                torch.testing.assert_close(got[key], t, msg=key)


def make_sentences():
    os.makedirs(at("bert"))
    with open(at("bert", "vocab.txt"), "w") as out:
        out.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat"]))
    BertTokenizer(at("bert", "vocab.txt")).save_pretrained(at("bert"))
    random(BertModel(BertConfig(**SMALL))).save_pretrained(at("bert"))
    transformer = Transformer(at("bert"))
    SentenceTransformer(modules=[transformer, Pooling(transformer.get_word_embedding_dimension()), Dense(SMALL["hidden_size"], 8)], device="cpu").save_pretrained(at("sentences"))
    shutil.rmtree(at("bert"))


def compare_sentences():
    got, want = (SentenceTransformer(at(*path), device="cpu") for path in (("to", "sentences"), ("sentences",)))
    same(got.state_dict(), want.state_dict())
    assert (got.encode(["a cat sat"]) == want.encode(["a cat sat"])).all()


for part in ("torch", "transformers", "diffusers", "peft", "sentences"):
    if len(sys.argv) < 4 or part in sys.argv[3:]:
        globals()[sys.argv[1] + "_" + part]()
