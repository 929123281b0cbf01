// Package checkpoint handles the directory of a model as a whole: it opens whatever format a
// directory holds, lists its models, and judges whether all readers see the same model in it.
//
// A directory may hold safetensors files, files of torch.save, a checkpoint that
// torch.distributed.checkpoint saved, or the files of its ranks. [Open] and [OpenFS] decide by
// the names of the files. The packages safetensors, torch and dcp open one format each, and
// do not look for the others.
//
// [Check] compares what the readers in use (transformers, huggingface_hub, accelerate,
// diffusers, peft, sentence-transformers, mlx-lm) make of a directory, by the rules that
// they read by. It runs none of them.
//
// All funcs may be called concurrently.
package checkpoint
