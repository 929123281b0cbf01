"""Saves models with options, adapters, pipelines and folders of sentence-transformers: options.py DIRECTORY [CASE...]"""
import os, sys, json, shutil, warnings, traceback
warnings.filterwarnings("ignore"); os.environ["HF_HUB_OFFLINE"]="1"; os.environ["TRANSFORMERS_VERBOSITY"]="error"
import importlib.metadata as _md; import torch, transformers as T

import peft.import_utils as _pi
for _n in ("is_gptqmodel_available",):
    if hasattr(_pi,_n): setattr(_pi,_n,lambda:False)
import peft,sys as _s
for _m in list(_s.modules.values()):
    if getattr(_m,"__name__","").startswith("peft") and hasattr(_m,"is_gptqmodel_available"): _m.is_gptqmodel_available=lambda:False
out=sys.argv[1]; os.makedirs(out,exist_ok=True)
def fill(m):
    seen=set()
    with torch.no_grad():
        for i,(n,p) in enumerate(list(m.named_parameters())+list(m.named_buffers())):
            if p.is_floating_point() and p.data_ptr() not in seen:
                p.copy_(torch.arange(p.numel()).reshape(p.shape).remainder(16)/64+i%64/8); seen.add(p.data_ptr())
    return m.eval()
L=dict(vocab_size=48,hidden_size=16,intermediate_size=24,num_hidden_layers=3,num_attention_heads=4,num_key_value_heads=2,max_position_embeddings=64)
def llama(**k): return fill(T.LlamaForCausalLM(T.LlamaConfig(**{**L,**k})))
def qwen(**k): return fill(T.Qwen2ForCausalLM(T.Qwen2Config(**{**L,**k})))
def gpt2(c=T.GPT2LMHeadModel): return fill(c(T.GPT2Config(vocab_size=48,n_embd=16,n_layer=2,n_head=2,n_positions=32)))
def bert(c): return fill(c(T.BertConfig(vocab_size=48,hidden_size=16,intermediate_size=24,num_hidden_layers=2,num_attention_heads=2,max_position_embeddings=32)))
def t5(**k): return fill(T.T5ForConditionalGeneration(T.T5Config(vocab_size=48,d_model=16,d_ff=24,d_kv=8,num_layers=2,num_heads=2,**k)))
cases={}
def case(f): cases[f.__name__]=f; return f
def sp(name,mk,**kw):
    def f(d): mk().save_pretrained(d,**kw)
    f.__name__=name; cases[name]=f
sp("llama-tied",lambda:llama(tie_word_embeddings=True)); sp("llama-shards",llama,max_shard_size="4kB"); sp("llama-variant",llama,variant="fp16"); sp("llama-variant-shards",llama,variant="fp16",max_shard_size="4kB")
sp("llama-bf16",lambda:llama().to(torch.bfloat16)); sp("llama-f64",lambda:llama().double())
sp("qwen-tied-shards",lambda:qwen(tie_word_embeddings=True),max_shard_size="4kB")
for c in ("GPT2LMHeadModel","GPT2Model","GPT2DoubleHeadsModel","GPT2ForSequenceClassification"): sp("gpt2-"+c,lambda c=c:gpt2(getattr(T,c)))
for c in ("BertModel","BertForMaskedLM","BertForPreTraining","BertLMHeadModel","BertForSequenceClassification","BertForQuestionAnswering"): sp("bert-"+c,lambda c=c:bert(getattr(T,c)))
sp("t5",t5); sp("t5-untied",lambda:t5(tie_word_embeddings=False)); sp("t5-enc",lambda:fill(T.T5EncoderModel(T.T5Config(vocab_size=48,d_model=16,d_ff=24,d_kv=8,num_layers=2,num_heads=2))))
@case
def bin_llama(d): m=llama(); m.save_pretrained(d); os.remove(d+"/model.safetensors"); torch.save(m.state_dict(),d+"/pytorch_model.bin")
@case
def bin_both(d): m=llama(tie_word_embeddings=True); m.save_pretrained(d); torch.save(m.state_dict(),d+"/pytorch_model.bin")
@case
def bin_both_gpt2(d): m=gpt2(); m.save_pretrained(d); torch.save(m.state_dict(),d+"/pytorch_model.bin")
@case
def bin_both_bertpre(d): m=bert(T.BertForPreTraining); m.save_pretrained(d); torch.save(m.state_dict(),d+"/pytorch_model.bin")
@case
def bin_both_t5(d): m=t5(); m.save_pretrained(d); torch.save(m.state_dict(),d+"/pytorch_model.bin")
@case
def cast_config_bf16_data_f32(d): # dtype in config narrower: as trainers with autocast leave
    m=llama(); m.save_pretrained(d); c=json.load(open(d+"/config.json")); c["dtype"]="bfloat16"; json.dump(c,open(d+"/config.json","w"))
@case
def resized(d): m=llama(); m.resize_token_embeddings(50); m.save_pretrained(d)
@case
def resized_padded(d): m=llama(); m.resize_token_embeddings(50,pad_to_multiple_of=16); m.save_pretrained(d)
@case
def lora(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj","v_proj"])).save_pretrained(d)
@case
def lora_all_linear(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules="all-linear")).save_pretrained(d)
@case
def lora_regex(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=r".*\.(q|k)_proj")).save_pretrained(d)
@case
def lora_embed(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj","embed_tokens","lm_head"])).save_pretrained(d)
@case
def lora_modules_to_save(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"],modules_to_save=["lm_head","embed_tokens"])).save_pretrained(d)
@case
def lora_saved_embeddings(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"])).save_pretrained(d,save_embedding_layers=True)
@case
def lora_rank_pattern(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj","v_proj"],rank_pattern={"v_proj":2})).save_pretrained(d)
@case
def lora_conv1d(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(gpt2(),LoraConfig(r=4,fan_in_fan_out=True,target_modules=["c_attn"])).save_pretrained(d)
@case
def lora_dora(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,use_dora=True,target_modules=["q_proj"],bias="all")).save_pretrained(d)
@case
def lora_params(d):
    from peft import LoraConfig,get_peft_model
    m=fill(T.Qwen3MoeForCausalLM(T.Qwen3MoeConfig(**{**L,"num_experts":4,"moe_intermediate_size":8,"head_dim":4,"num_experts_per_tok":2})))
    get_peft_model(m,LoraConfig(r=4,target_modules=["q_proj"],target_parameters=["mlp.experts.gate_up_proj"])).save_pretrained(d)
@case
def lora_trainable_tokens(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"],trainable_token_indices=[1,2])).save_pretrained(d)
@case
def lora_two(d):
    from peft import LoraConfig,get_peft_model
    m=get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"])); m.add_adapter("other",LoraConfig(r=2,target_modules=["v_proj"])); m.save_pretrained(d)
@case
def lora_layers(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"],layers_to_transform=[1])).save_pretrained(d)
@case
def lora_conv(d):
    from peft import LoraConfig,get_peft_model
    m=fill(torch.nn.Sequential(torch.nn.Conv2d(3,4,3),torch.nn.Linear(4,4)))
    get_peft_model(m,LoraConfig(r=2,target_modules=["0","1"])).save_pretrained(d)
@case
def lora_exclude(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"],exclude_modules=["model.layers.0.self_attn.q_proj"])).save_pretrained(d)
@case
def lora_alpha_pattern_regex(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj","v_proj"],rank_pattern={"layers.0.self_attn.q_proj":8})).save_pretrained(d)
@case
def loha(d):
    from peft import LoHaConfig,get_peft_model
    get_peft_model(llama(),LoHaConfig(r=4,target_modules=["q_proj"])).save_pretrained(d)
@case
def ia3(d):
    from peft import IA3Config,get_peft_model
    get_peft_model(llama(),IA3Config(target_modules=["k_proj","down_proj"],feedforward_modules=["down_proj"])).save_pretrained(d)
@case
def prompt(d):
    from peft import PromptTuningConfig,get_peft_model
    get_peft_model(llama(),PromptTuningConfig(task_type="CAUSAL_LM",num_virtual_tokens=4)).save_pretrained(d)
@case
def vera(d):
    from peft import VeraConfig,get_peft_model
    get_peft_model(llama(),VeraConfig(r=4,target_modules=["q_proj"])).save_pretrained(d)
@case
def adalora(d):
    from peft import AdaLoraConfig,get_peft_model
    get_peft_model(llama(),AdaLoraConfig(target_r=2,init_r=4,total_step=10,target_modules=["q_proj"])).save_pretrained(d)
@case
def lora_bin(d):
    from peft import LoraConfig,get_peft_model
    get_peft_model(llama(),LoraConfig(r=4,target_modules=["q_proj"])).save_pretrained(d,safe_serialization=False)
@case
def trainer_like(d):
    m=llama(); m.save_pretrained(d)
    o=torch.optim.AdamW(m.parameters()); m(input_ids=torch.ones(1,4,dtype=torch.long),labels=torch.ones(1,4,dtype=torch.long)).loss.backward(); o.step()
    torch.save(o.state_dict(),d+"/optimizer.pt"); torch.save({"last_epoch":1},d+"/scheduler.pt"); torch.save({"a":1},d+"/training_args.bin"); torch.save({"cpu":torch.get_rng_state()},d+"/rng_state.pth"); json.dump({},open(d+"/trainer_state.json","w"))
    m.save_pretrained(d+"/checkpoint-10"); torch.save(o.state_dict(),d+"/checkpoint-10/optimizer.pt"); torch.save(o.state_dict(),d+"/checkpoint-10/optimizer.bin")
@case
def accelerate_state(d):
    from accelerate import Accelerator
    a=Accelerator(cpu=True); m=llama(); o=torch.optim.AdamW(m.parameters()); m,o=a.prepare(m,o); a.save_state(d)
@case
def accelerate_model(d):
    from accelerate import Accelerator
    Accelerator(cpu=True).save_model(llama(),d,max_shard_size="4kB")
@case
def hub_torch_model(d):
    from huggingface_hub import save_torch_model
    os.makedirs(d); save_torch_model(gpt2(),d,max_shard_size="4kB")
@case
def hub_torch_model_bin(d):
    from huggingface_hub import save_torch_model
    os.makedirs(d); save_torch_model(gpt2(),d,max_shard_size="4kB",safe_serialization=False)
@case
def mixin(d):
    from huggingface_hub import PyTorchModelHubMixin
    class M(torch.nn.Module,PyTorchModelHubMixin):
        def __init__(s,hidden_size:int=4,num_hidden_layers:int=5,vocab_size:int=7): super().__init__(); s.embeddings=torch.nn.Module(); s.embeddings.word_embeddings=torch.nn.Embedding(9,4)
    M().save_pretrained(d)
@case
def moe(d): fill(T.MixtralForCausalLM(T.MixtralConfig(**L,num_local_experts=4))).save_pretrained(d)
@case
def vlm(d):
    fill(T.LlavaForConditionalGeneration(T.LlavaConfig(vision_config=T.CLIPVisionConfig(hidden_size=16,intermediate_size=24,num_hidden_layers=2,num_attention_heads=2,image_size=16,patch_size=8),text_config=T.LlamaConfig(**L)))).save_pretrained(d)
@case
def vlm_tied(d):
    fill(T.LlavaForConditionalGeneration(T.LlavaConfig(tie_word_embeddings=True,vision_config=T.CLIPVisionConfig(hidden_size=16,intermediate_size=24,num_hidden_layers=2,num_attention_heads=2,image_size=16,patch_size=8),text_config=T.LlamaConfig(**L,tie_word_embeddings=True)))).save_pretrained(d)
@case
def encdec(d):
    b=T.BertConfig(vocab_size=48,hidden_size=16,intermediate_size=24,num_hidden_layers=2,num_attention_heads=2,max_position_embeddings=32)
    fill(T.EncoderDecoderModel(T.EncoderDecoderConfig.from_encoder_decoder_configs(b,b))).save_pretrained(d)
@case
def whisper(d): fill(T.WhisperForConditionalGeneration(T.WhisperConfig(vocab_size=48,num_mel_bins=8,d_model=16,encoder_layers=2,decoder_layers=2,encoder_attention_heads=2,decoder_attention_heads=2,encoder_ffn_dim=16,decoder_ffn_dim=16,max_source_positions=16,max_target_positions=16,pad_token_id=0,bos_token_id=1,eos_token_id=2,decoder_start_token_id=1))).save_pretrained(d,max_shard_size="4kB")
@case
def sentence(d):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling,Dense,Normalize,Transformer
    from tokenizers import Tokenizer,models,pre_tokenizers
    os.makedirs(d+"-b"); bert(T.BertModel).save_pretrained(d+"-b")
    tk=Tokenizer(models.WordLevel({"[UNK]":0,"[PAD]":1,"a":2},unk_token="[UNK]")); tk.pre_tokenizer=pre_tokenizers.Whitespace()
    T.PreTrainedTokenizerFast(tokenizer_object=tk,unk_token="[UNK]",pad_token="[PAD]").save_pretrained(d+"-b")
    t=Transformer(d+"-b"); s=SentenceTransformer(modules=[t,Pooling(16),Dense(16,8),Dense(8,4),Normalize()]); s.save_pretrained(d)
    s.save_pretrained(d+"-bin",safe_serialization=False); 
    from sentence_transformers import CrossEncoder
    bert(T.BertForSequenceClassification).save_pretrained(d+"-c"); T.PreTrainedTokenizerFast(tokenizer_object=tk,unk_token="[UNK]",pad_token="[PAD]").save_pretrained(d+"-c")
    CrossEncoder(d+"-c").save_pretrained(d+"-cross")
@case
def sentence_static(d):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer,models
    tk=Tokenizer(models.WordLevel({"[UNK]":0,"a":1},unk_token="[UNK]"))
    SentenceTransformer(modules=[StaticEmbedding(tk,embedding_dim=8)]).save_pretrained(d)
@case
def sentence_sparse(d):
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.models import MLMTransformer,SpladePooling
    from tokenizers import Tokenizer,models
    tk=Tokenizer(models.WordLevel({"[UNK]":0,"[PAD]":1,"a":2},unk_token="[UNK]"))
    os.makedirs(d+"-b"); bert(T.BertForMaskedLM).save_pretrained(d+"-b"); T.PreTrainedTokenizerFast(tokenizer_object=tk,unk_token="[UNK]",pad_token="[PAD]").save_pretrained(d+"-b")
    SparseEncoder(modules=[MLMTransformer(d+"-b"),SpladePooling("max")]).save_pretrained(d)
@case
def sd(d):
    from diffusers import StableDiffusionPipeline,UNet2DConditionModel,AutoencoderKL,DDIMScheduler
    u=fill(UNet2DConditionModel(sample_size=8,block_out_channels=(8,8),layers_per_block=1,in_channels=4,out_channels=4,norm_num_groups=4,down_block_types=("DownBlock2D","CrossAttnDownBlock2D"),up_block_types=("CrossAttnUpBlock2D","UpBlock2D"),cross_attention_dim=16,attention_head_dim=2))
    v=fill(AutoencoderKL(block_out_channels=(8,8),in_channels=3,out_channels=3,norm_num_groups=4,down_block_types=("DownEncoderBlock2D","DownEncoderBlock2D"),up_block_types=("UpDecoderBlock2D","UpDecoderBlock2D"),latent_channels=4))
    te=fill(T.CLIPTextModel(T.CLIPTextConfig(vocab_size=50,hidden_size=16,intermediate_size=24,num_hidden_layers=2,num_attention_heads=2,projection_dim=16)))
    os.makedirs(d); json.dump({"<|startoftext|>":0,"<|endoftext|>":1,"a":2},open(d+"/v.json","w")); open(d+"/m.txt","w").write("#version: 0.2\n")
    tok=T.CLIPTokenizer(d+"/v.json",d+"/m.txt"); os.remove(d+"/v.json"); os.remove(d+"/m.txt")
    p=StableDiffusionPipeline(vae=v,text_encoder=te,tokenizer=tok,unet=u,scheduler=DDIMScheduler(),safety_checker=None,feature_extractor=None)
    p.save_pretrained(d); p.save_pretrained(d+"-fp16",variant="fp16"); p.save_pretrained(d+"-bin",safe_serialization=False); p.save_pretrained(d+"-shards",max_shard_size="20kB")
    p.save_pretrained(d+"-plainand16"); p.to(torch.float16).save_pretrained(d+"-plainand16",variant="fp16")
    p.to(torch.float32); p.save_pretrained(d+"-binand"); p.save_pretrained(d+"-binand",safe_serialization=False)
    u.save_pretrained(d+"-unet"); u.save_pretrained(d+"-unet-bin",safe_serialization=False)
@case
def flux(d):
    from diffusers import FluxTransformer2DModel,FlowMatchEulerDiscreteScheduler
    fill(FluxTransformer2DModel(patch_size=1,in_channels=4,num_layers=1,num_single_layers=1,attention_head_dim=16,num_attention_heads=2,joint_attention_dim=16,pooled_projection_dim=16,axes_dims_rope=[4,4,8])).save_pretrained(d,max_shard_size="10kB")
@case
def dtype_mixed(d):
    m=llama().to(torch.bfloat16); m.model.norm.to(torch.float32); m.save_pretrained(d)
@case
def ema(d):
    m=llama(); m.save_pretrained(d); m.save_pretrained(d,variant="ema")
@case
def gemma(d): fill(T.Gemma2ForCausalLM(T.Gemma2Config(**L,head_dim=4))).save_pretrained(d)
@case
def mamba(d): fill(T.MambaForCausalLM(T.MambaConfig(vocab_size=48,hidden_size=16,state_size=4,num_hidden_layers=2))).save_pretrained(d)
@case
def two_models(d): llama().save_pretrained(d+"/a"); gpt2().save_pretrained(d+"/b")
@case
def shards_then_bigger(d):
    m=llama(); m.save_pretrained(d,max_shard_size="4kB"); m.save_pretrained(d,max_shard_size="8kB")
@case
def shards_then_single(d):
    m=llama(); m.save_pretrained(d,max_shard_size="4kB"); m.save_pretrained(d)
only=sys.argv[2:]
for n,f in cases.items():
    if only and n not in only: continue
    try: f(f"{out}/{n}")
    except NotImplementedError: pass
    except Exception as e: print(n,"FAILED",type(e).__name__,str(e)[:200]); shutil.rmtree(f"{out}/{n}",ignore_errors=True)
