"""Loads each model without each of its tensors and writes what transformers reports as missing: losses.py DIRECTORY.
DIRECTORY is that of architectures.py; the models without a tensor go to DIRECTORY-losses."""
import os,sys,json,shutil,glob,warnings
warnings.filterwarnings("ignore"); os.environ["HF_HUB_OFFLINE"]="1"; os.environ["TRANSFORMERS_VERBOSITY"]="error"
import torch, transformers, logging
logging.disable(logging.CRITICAL)
from safetensors.torch import load_file, save_file
rows={json.loads(l)["d"].split("/")[-1]:json.loads(l) for l in open(sys.argv[1]+".jsonl") if '"ok": true' in l}
out=sys.argv[1]+"-losses"; shutil.rmtree(out,ignore_errors=True); os.makedirs(out)
log=open(out+".jsonl","w")
for t in "llama-causal qwen2-causal qwen3-causal gemma2-causal mixtral-causal gpt2-causal bert-pre bert-mlm roberta-mlm distilbert-mlm t5-s2s whisper-asr clip-base vit-img dinov2-img opt-causal bloom-causal gptj-causal gpt_neox-causal llava-vlm phi3-causal bart-s2s clip_text_model-base mpnet-mlm deberta-v2-mlm mamba-base gemma3-vlm qwen2_vl-vlm".split():
    if t not in rows: print("no",t); continue
    src=sys.argv[1]+"/"+t; cls=getattr(transformers,rows[t]["cls"])
    w=load_file(src+"/model.safetensors"); keys=sorted(w)
    for k in keys:
        d=f"{out}/{t}__{keys.index(k)}"; os.makedirs(d)
        shutil.copy(src+"/config.json",d)
        save_file({x:y for x,y in w.items() if x!=k},d+"/model.safetensors",{"format":"pt"})
        try:
            m,info=cls.from_pretrained(d,output_loading_info=True); miss=sorted(info["missing_keys"])
            log.write(json.dumps({"d":d,"key":k,"missing":miss})+"\n")
        except Exception as e: log.write(json.dumps({"d":d,"key":k,"error":str(e)[:100]})+"\n")
        log.flush()
