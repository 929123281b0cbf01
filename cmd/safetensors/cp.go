package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// copyFlags are the flags of cp as they are given, and what check makes of them.
type copyFlags struct {
	dtype            string
	only, except     []string
	renames          []string
	dequantize       string
	quantize         quant.Scheme // "" if not
	targets          []string
	maxShardSize     string
	ranks            int
	meta             []string
	withoutMeta, tie bool
	withFiles, force bool
	part             parts.Part
	given            *pflag.FlagSet // which knows those that are set

	selection, targeted pattern.Selection
	renaming            []pattern.Rename
	conversions         map[safetensors.DType]safetensors.DType
	pairs               map[string]string
	plain               safetensors.DType // of what is dequantised; 0 if nothing is
}

func (c *command) cp() *cobra.Command {
	var f copyFlags
	cmd := c.verb("cp SRC... DST [flags]", "Copy, convert, join, split, prune, rename, download and upload", `
Several SRC become one; a tensor in two of them is an error.

DST is a .safetensors, .npz or .bt file, a folder, a file or a folder in a bucket
(s3://..., gs://..., azblob://...), a file:///... URL or - for standard output. A file
appears complete or not at all; a folder is copied shard by shard, its index last. It may
be SRC itself, with --force.

Tensors are selected by --only and --except first, then renamed, then converted.
--dequantize comes before that and --quantize after it. Parts of quantised tensors are not
converted. Where SRC has a config.json and DST is a folder, that gets a config.json with
the new dtypes and the new quantization_config, or without one. SCHEME is fp8-block,
fp8-channel, nvfp4, mxfp4, int4 or int8.

--part K/N writes a part of the shards, of which N machines write one each, with the same
flags and in any order; a part that was killed is run again. The one that finds all shards
writes the index. The exit code is 3 where another try does not help.
--json prints one line on what was written:
  {"file": DST, "total": {"tensors", "parameters", "bytes"},
   "files": [names of the other files: a new config.json, those of --with-files]}
and with --part {"file": DST, "part": "K/N", "written": [names of shards], "found": [those
that were there], "complete": whether the whole checkpoint is}
`+sources, `
safetensors cp model.safetensors half.safetensors --dtype bf16
safetensors cp hf://mistralai/Mistral-7B-v0.3 mistral --max-shard-size 5GB
safetensors cp base.safetensors adapter.safetensors merged.safetensors
safetensors cp model.safetensors - --only 'model.layers.0.*' | safetensors ls -
safetensors cp hf://deepseek-ai/DeepSeek-V3 plain --dequantize bf16 --max-shard-size 5GB
safetensors cp model model-fp8 --quantize fp8-block
safetensors cp checkpoint s3://models/llama --rename 's/^module\.//'
`, cobra.MatchAll(arguments(2, -1), stdinOnce), func(args []string) error {
		return c.copy(args[:len(args)-1], args[len(args)-1], &f)
	})
	flags := cmd.Flags()
	f.given = flags
	flags.StringVar(&f.dtype, "dtype", "", "convert F64, F32, F16 and BF16 tensors to `DTYPE`, or FROM=TO,... of any float dtypes")
	flags.StringArrayVar(&f.only, "only", nil, "copy only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it")
	flags.StringArrayVar(&f.except, "except", nil, "leave out tensors that match `PATTERN`")
	flags.StringArrayVar(&f.renames, "rename", nil, "rename tensors with `s/REGEXP/REPLACEMENT/`, as sed does")
	flags.StringVar(&f.dequantize, "dequantize", "", "write quantised tensors as the numbers they stand for, in `DTYPE`: bf16, f16 or f32")
	flags.StringVar((*string)(&f.quantize), "quantize", "", "quantise weights as `SCHEME`, in a layout of compressed-tensors")
	flags.StringArrayVar(&f.targets, "targets", nil, "quantise the tensors that match `PATTERN`, not the usual ones")
	flags.StringVar(&f.maxShardSize, "max-shard-size", "", "split into shards of at most `SIZE`, such as 5GB")
	flags.IntVar(&f.ranks, "ranks", 0, "write a distributed checkpoint of PyTorch for `N` ranks, a file for each")
	flags.StringArrayVar(&f.meta, "meta", nil, "set the metadata `KEY=VALUE`")
	flags.BoolVar(&f.withoutMeta, "without-meta", false, "leave out the metadata of SRC")
	flags.BoolVar(&f.tie, "tie", false, "write tensors that share their data once, as save_model of Python does")
	flags.BoolVar(&f.withFiles, "with-files", false, "copy the small files next to the weights, too: configuration, tokenizers")
	flags.BoolVar(&f.force, "force", false, "replace DST")
	flags.Var(&f.part, "part", "write the shards of part `K/N`: N machines write one part each")
	return cmd
}

func (f *copyFlags) check() error {
	var errs [5]error
	f.selection, errs[0] = pattern.ParseSelection(f.only, f.except)
	f.renaming, errs[1] = pattern.Each(f.renames, pattern.ParseRename)
	f.conversions, errs[2] = parseConversions(f.dtype)
	f.pairs, errs[3] = parsePairs(f.meta)
	f.targeted, errs[4] = pattern.ParseSelection(f.targets, nil)
	var noDType error
	if f.dequantize != "" {
		f.plain, noDType = parseDType(f.dequantize)
	}
	_, _, noScheme := quant.Quantize(nil, quant.Recipe{Scheme: f.quantize})
	switch err := cmp.Or(errs[:]...); {
	case err != nil:
		return usageError{err}
	case noDType != nil, !slices.Contains([]safetensors.DType{0, safetensors.BF16, safetensors.F16, safetensors.F32}, f.plain):
		return usage("--dequantize %s: expected bf16, f16 or f32", f.dequantize)
	case f.quantize == "" && len(f.targets) > 0:
		return usage("--targets goes with --quantize")
	case f.given.Changed("ranks") && f.ranks == 0:
		return usage("--ranks 0: expected the number of ranks")
	case f.quantize != "" && noScheme != nil:
		return usage("--quantize %s: expected fp8-block, fp8-channel, nvfp4, mxfp4, int4 or int8", f.quantize)
	}
	return nil
}

// requantizes reports whether the copy needs another quantization_config.
func (f *copyFlags) requantizes() bool { return f.plain != 0 || f.quantize != "" }

// schemes are the values of --quantize for what people call the dtypes of quantised models.
var schemes = map[string]quant.Scheme{
	"fp8": "fp8-block", "fp8-block": "fp8-block", "fp8-channel": "fp8-channel", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4",
	"int4": "int4", "int8": "int8",
}

// parseConversions reads the value of --dtype. A dtype alone is for those floats that
// are numbers by themselves: narrower ones come with scales.
func parseConversions(text string) (map[safetensors.DType]safetensors.DType, error) {
	convert := make(map[safetensors.DType]safetensors.DType)
	if text == "" {
		return convert, nil
	}
	for _, part := range strings.Split(text, ",") {
		from, to, explicit := strings.Cut(part, "=")
		if !explicit {
			to = from
		}
		if scheme, ok := schemes[strings.ToLower(to)]; ok {
			return nil, fmt.Errorf("--dtype %s: a conversion makes no scales; --quantize %s does", text, scheme)
		}
		target, err := parseDType(to)
		if err != nil {
			return nil, err
		}
		sources := []safetensors.DType{safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16}
		if explicit {
			d, err := parseDType(from)
			if err != nil {
				return nil, err
			}
			sources = []safetensors.DType{d}
		}
		for _, d := range sources {
			none, _ := safetensors.NewTensor(d, []int{0}, []byte{})
			if _, err := none.Convert(target); err != nil {
				return nil, fmt.Errorf("%v cannot be converted to %v", d, target)
			}
			convert[d] = target
		}
	}
	return convert, nil
}
