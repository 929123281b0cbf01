"""Saves a tiny model of every architecture of transformers that can be made small: architectures.py DIRECTORY"""
import os, sys, json, time, shutil, signal, warnings
warnings.filterwarnings("ignore")
os.environ["HF_HUB_OFFLINE"]="1"; os.environ["TRANSFORMERS_VERBOSITY"]="error"
import torch, transformers
from transformers.models.auto import modeling_auto as ma
from transformers import CONFIG_MAPPING
out=sys.argv[1]; os.makedirs(out,exist_ok=True)
torch.manual_seed(0)
SMALL=dict(vocab_size=99,hidden_size=32,intermediate_size=37,num_hidden_layers=2,num_attention_heads=4,num_key_value_heads=2,head_dim=8,d_model=32,n_embd=32,n_layer=2,n_head=4,n_positions=64,max_position_embeddings=64,d_ff=37,d_kv=8,num_layers=2,num_heads=4,num_decoder_layers=2,num_encoder_layers=2,encoder_layers=2,decoder_layers=2,encoder_attention_heads=4,decoder_attention_heads=4,encoder_ffn_dim=37,decoder_ffn_dim=37,ffn_dim=37,embedding_size=16,word_embed_proj_dim=32,image_size=32,patch_size=8,state_size=4,num_local_experts=4,num_experts=4,n_routed_experts=4,num_experts_per_tok=2,moe_intermediate_size=16,first_k_dense_replace=1,kv_lora_rank=8,q_lora_rank=8,qk_rope_head_dim=8,qk_nope_head_dim=8,v_head_dim=8,n_group=1,topk_group=1,max_source_positions=64,max_target_positions=64,num_mel_bins=16,projection_dim=16,vocab_size_per_layer_input=99,hidden_size_per_layer_input=8,n_heads=4,n_layers=2,dim=32,hidden_dim=37,emb_dim=32,pad_token_id=0,bos_token_id=1,eos_token_id=2,conv_dim=(32,32),conv_stride=(2,2),conv_kernel=(3,3),num_conv_pos_embeddings=4,num_conv_pos_embedding_groups=2,time_step_rank=4,lru_width=32,attention_window=8,depths=[1,1],embed_dim=16,hidden_sizes=[16,16,16,16],shared_expert_intermediate_size=16,layer_types=None,decoder_start_token_id=1,n_mels=16,rotary_dim=8,max_seq_len=64,ffn_hidden_size=37)
class TO(Exception): pass
def alarm(*a): raise TO()
signal.signal(signal.SIGALRM,alarm)
def shrink(cfg,depth=0):
    for k,v in SMALL.items():
        if k=="layer_types": continue
        try:
            if hasattr(cfg,k) and getattr(cfg,k) is not None: setattr(cfg,k,v)
        except Exception: pass
    lt=getattr(cfg,"layer_types",None)
    if isinstance(lt,list):
        kinds=list(dict.fromkeys(lt))
        cfg.layer_types=(kinds*2)[:2]
    if depth<3:
        for k in getattr(cfg,"sub_configs",{}):
            s=getattr(cfg,k,None)
            if s is not None and not isinstance(s,dict): shrink(s,depth+1)
    return cfg
maps={"base":ma.MODEL_MAPPING_NAMES,"causal":ma.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,"s2s":ma.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,"mlm":ma.MODEL_FOR_MASKED_LM_MAPPING_NAMES,"cls":ma.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,"pre":ma.MODEL_FOR_PRETRAINING_MAPPING_NAMES,"vlm":ma.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,"img":ma.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,"asr":ma.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES}
log=open(out+".jsonl","w")
types=list(CONFIG_MAPPING.keys())
only=sys.argv[2:] 
def fill(m):
    seen={}
    with torch.no_grad():
        for i,(n,p) in enumerate(list(m.named_parameters())+list(m.named_buffers())):
            if p.is_floating_point() and p.data_ptr() not in seen:
                p.fill_((i%256)/64.0); seen[p.data_ptr()]=1
for t in types:
    if only and t not in only: continue
    for kind,mp in maps.items():
        names=mp.get(t)
        if not names: continue
        for name in (names if isinstance(names,(tuple,list)) else [names])[:1]:
            d=f"{out}/{t}-{kind}"
            signal.alarm(25)
            try:
                cls=getattr(transformers,name)
                cfg=shrink(CONFIG_MAPPING[t]())
                with torch.device("meta"): m=cls(cfg)
                n=sum(p.numel() for p in m.parameters())
                if n>2_000_000: raise RuntimeError(f"big {n}")
                m=cls(cfg).eval(); fill(m)
                m.save_pretrained(d)
                log.write(json.dumps({"d":d,"cls":name,"ok":True,"n":n,"tied":bool(getattr(m,"_tied_weights_keys",None))})+"\n")
            except BaseException as e:
                if isinstance(e,KeyboardInterrupt): raise
                shutil.rmtree(d,ignore_errors=True)
                log.write(json.dumps({"d":d,"cls":name,"ok":False,"why":f"{type(e).__name__}: {e}"[:200]})+"\n")
            finally: signal.alarm(0)
            log.flush()
