package main

import (
	"github.com/spf13/cobra"
)

func (c *command) cp() *cobra.Command {
	var f copyFlags
	cmd := c.verb("cp SRC... DST [flags]", "Copy, convert, join, split, prune, rename, download and upload", `
Several SRC become one; a tensor in two of them is an error.

The ending of DST decides what is written:
  x.safetensors, x.npz, x.bt   this file
  DIR/                         one file, into DIR under its own name, as cp of Unix does
  DIR                          the folder of a model: model.safetensors, or its shards
  -                            standard output, as a safetensors file
DST may be in a bucket (s3://..., gs://..., azblob://...) or a file:///... URL. Only a
single file keeps its own name in DIR/: if SRC is a folder or several files, or with
--max-shard-size, DIR/ is the same as DIR. Endings of other files, such as .bin, .txt or
.safetensors.bak, are refused.

Without a flag that changes it, a single safetensors file is copied byte for byte, and
compared with the sum that a hub lists for it; --align 8 writes a new file instead.

A file appears complete or not at all; a folder is copied shard by shard, its index last.
Without --max-shard-size, a folder of shards keeps its shards. DST may be SRC itself,
with --force; its shards get new names, such as
model.123456789-00001-of-00003.safetensors. Checkpoints in DST with another stem, such as
consolidated, stay; the copy is refused if programs would open one of these instead of
it. If DST is a symbolic link to a file, the link stays, and its target is replaced, as
by cp of Unix.

Tensors are dequantised, then selected by --only and --except, then renamed, then
converted, then quantised. The other names of a tied tensor, which the metadata of a file
lists, are selected and renamed like tensors; --without-meta loses them, and so does
--quantize if it makes codes of the tensor. The codes, scales and zero points of quantised
tensors keep their dtypes. SCHEME is fp8-block, fp8-channel, nvfp4, mxfp4, int4 or int8.

A copy in a folder whose dtypes have changed gets a config.json that fits them, if SRC has
one: with the new dtypes, and with the new quantization_config or none. Other files are
copied by --with-files only.

--part K/N writes one of N parts of the shards. N machines run the same command, each with
its own K, in any order; a part that was killed can be run again. The run that finds all
shards present writes the index. With --part, exit code 3 means that another try would not
help.

--json prints one line about what was written:
  {"file": DST, "total": {"tensors", "parameters", "bytes"},
   "files": [the other files: a new config.json, those of --with-files]}
or, with --part:
  {"file": DST, "part": "K/N", "written": [shards that it wrote],
   "found": [shards that were there], "complete": true if no shard is missing}
`+sources, `
safetensors cp model.safetensors half.safetensors --dtype bf16
safetensors cp hf://mistralai/Mistral-7B-v0.3 mistral --with-files
safetensors cp part1.safetensors part2.safetensors joined.safetensors
safetensors cp model.safetensors - --only 'model.layers.0.*' | safetensors ls -
safetensors cp hf://deepseek-ai/DeepSeek-V3 plain --dequantize bf16 --max-shard-size 5GB
safetensors cp model model-fp8 --quantize fp8-block
safetensors cp checkpoint s3://models/llama --rename 's/^module\.//'
`, cobra.MatchAll(arguments(2, -1), stdinOnce), func(args []string) error {
		return c.copy(args[:len(args)-1], args[len(args)-1], &f)
	})
	flags := cmd.Flags()
	f.addTo(flags)
	flags.StringArrayVar(&f.only, "only", nil, "copy only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it")
	flags.StringArrayVar(&f.except, "except", nil, "leave out tensors that match `PATTERN`")
	flags.StringArrayVar(&f.renames, "rename", nil, "rename tensors with `s/REGEXP/REPLACEMENT/` and the flags g and i, as sed; REGEXP has the syntax of RE2: of alternatives, the first that matches counts")
	flags.StringVar(&f.dequantize, "dequantize", "", "write quantised tensors as the numbers that they stand for, in `DTYPE`: bf16, f16 or f32")
	flags.StringVar((*string)(&f.quantize), "quantize", "", "quantise weights as `SCHEME`, in a layout of compressed-tensors")
	flags.StringArrayVar(&f.targets, "targets", nil, "quantise the tensors that match `PATTERN`, instead of all matrices except embeddings, norms, routers and heads; their names must end in .weight")
	flags.IntVar(&f.ranks, "ranks", 0, "write a distributed checkpoint of PyTorch for `N` ranks, a safetensors file for each, which its HuggingFaceStorageReader loads")
	flags.IntVar(&f.align, "align", 0, "start the data of each file at a multiple of `N` bytes, a power of two; spaces in the header fill the gap")
	flags.StringArrayVar(&f.meta, "meta", nil, "set the metadata `KEY=VALUE`")
	flags.BoolVar(&f.withoutMeta, "without-meta", false, "leave out the metadata of SRC")
	flags.BoolVar(&f.tie, "tie", false, "write data once if several tensors share it, as save_model of Python does")
	flags.Var(&f.part, "part", "write the shards of part `K/N`: N machines write one part each")
	return cmd
}
