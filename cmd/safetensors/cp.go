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

// copyFlags are the flags of cp as given, and their parsed values, which check sets.
type copyFlags struct {
	dtype            string
	only, except     []string
	renames          []string
	dequantize       string
	quantize         quant.Scheme // "" if the flag is not set
	targets          []string
	maxShardSize     string
	ranks            int
	align            int // 0 if the flag is not set
	meta             []string
	withoutMeta, tie bool
	withFiles, force bool
	part             parts.Part
	given            *pflag.FlagSet // the flags that are set

	selection, targeted pattern.Selection
	renaming            []pattern.Rename
	conversions         map[safetensors.DType]safetensors.DType
	pairs               map[string]string
	plain               safetensors.DType // dtype of dequantised tensors; 0 if nothing is dequantised
}

func (c *command) cp() *cobra.Command {
	var f copyFlags
	cmd := c.verb("cp SRC... DST [flags]", "Copy, convert, join, split, prune, rename, download and upload", `
Several SRC become one; a tensor in two of them is an error.

The ending of DST decides what is written:
  x.safetensors, x.npz, x.bt   this file
  DIR/                         one file, into DIR under its own name, as cp of Unix does
  DIR                          the folder of a model: model.safetensors, or its shards
  -                            standard output, as a safetensors file
DST may be in a bucket (s3://..., gs://..., azblob://...) or a file:///... URL. If SRC is
a folder or several files, or with --max-shard-size, DIR/ is the same as DIR. Endings of
other files, such as .bin or .txt, are refused.

A file appears complete or not at all; a folder is copied shard by shard, its index last.
DST may be SRC itself, with --force.

Tensors are dequantised, then selected by --only and --except, then renamed, then
converted, then quantised. Parts of quantised tensors are not converted. If dtypes
change, SRC has a config.json and DST is a folder, DST gets a config.json that fits the
new tensors: their dtypes, and the new quantization_config or none. Other files are copied
by --with-files only. SCHEME is fp8-block, fp8-channel, nvfp4, mxfp4, int4 or int8.

--part K/N writes one of N parts of the shards. N machines run the same command, each with
its own K, in any order; a part that was killed can be run again. The run that finds all
shards present writes the index. Exit code 3 means that another try would not help.

--json prints one line about what was written:
  {"file": DST, "total": {"tensors", "parameters", "bytes"},
   "files": [the other files: a new config.json, those of --with-files]}
or, with --part:
  {"file": DST, "part": "K/N", "written": [shards that it wrote],
   "found": [shards that were there], "complete": true if no shard is missing}
`+sources, `
safetensors cp model.safetensors half.safetensors --dtype bf16
safetensors cp hf://mistralai/Mistral-7B-v0.3 mistral --max-shard-size 5GB --with-files
safetensors cp base.safetensors adapter.safetensors merged.safetensors
safetensors cp model.safetensors - --only 'model.layers.0.*' | safetensors ls -
safetensors cp hf://deepseek-ai/DeepSeek-V3 plain --dequantize bf16 --max-shard-size 5GB
safetensors cp model model-fp8 --quantize fp8-block
safetensors cp checkpoint s3://models/llama --rename 's/^module\.//'
`, cobra.MatchAll(arguments(2, -1), stdinOnce), func(args []string) error {
		return c.copy(args[:len(args)-1], args[len(args)-1], &f)
	})
	flags := cmd.Flags()
	f.addTo(flags)
	flags.StringArrayVar(&f.only, "only", nil, "copy only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it; may be repeated")
	flags.StringArrayVar(&f.except, "except", nil, "leave out tensors that match `PATTERN`")
	flags.StringArrayVar(&f.renames, "rename", nil, "rename tensors with `s/REGEXP/REPLACEMENT/`, as sed does")
	flags.StringVar(&f.dequantize, "dequantize", "", "write quantised tensors as the numbers that they stand for, in `DTYPE`: bf16, f16 or f32")
	flags.StringVar((*string)(&f.quantize), "quantize", "", "quantise weights as `SCHEME`, in a layout of compressed-tensors")
	flags.StringArrayVar(&f.targets, "targets", nil, "quantise the tensors that match `PATTERN`, instead of all matrices except embeddings, norms, routers and lm_head")
	flags.IntVar(&f.ranks, "ranks", 0, "write a distributed checkpoint of PyTorch for `N` ranks, a file for each")
	flags.IntVar(&f.align, "align", 0, "start the data of each file at a multiple of `N` bytes, a power of two; spaces in the header fill the gap")
	flags.StringArrayVar(&f.meta, "meta", nil, "set the metadata `KEY=VALUE`")
	flags.BoolVar(&f.withoutMeta, "without-meta", false, "leave out the metadata of SRC")
	flags.BoolVar(&f.tie, "tie", false, "write tensors that share their data once, as save_model of Python does")
	flags.Var(&f.part, "part", "write the shards of part `K/N`: N machines write one part each")
	return cmd
}

// addTo adds the flags that cp and merge have in common.
func (f *copyFlags) addTo(flags *pflag.FlagSet) {
	f.given = flags
	flags.StringVar(&f.dtype, "dtype", "", "convert F64, F32, F16 and BF16 tensors to `DTYPE`, or FROM=TO,... of any float dtypes; bf16,f32=f32 leaves F32 as it is")
	flags.StringVar(&f.maxShardSize, "max-shard-size", "", "split into shards of at most `SIZE`, such as 5GB")
	flags.BoolVar(&f.withFiles, "with-files", false, "copy the small files next to the weights, too: configuration, tokenizers")
	flags.BoolVar(&f.force, "force", false, "replace DST")
}

// maxAlign is the largest alignment of the data in bytes. The header aligns the data with spaces,
// and may have at most 100,000,000 bytes.
const maxAlign = 1 << 26

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
		return usage("--targets needs --quantize")
	case f.given.Changed("align") && (f.align < 1 || f.align&(f.align-1) != 0 || f.align > maxAlign):
		return usage("--align %d: expected a power of two of bytes, at most %d", f.align, maxAlign)
	case f.given.Changed("ranks") && f.ranks == 0:
		return usage("--ranks 0: expected the number of ranks")
	case f.quantize != "" && noScheme != nil:
		return usage("--quantize %s: expected fp8-block, fp8-channel, nvfp4, mxfp4, int4 or int8", f.quantize)
	}
	return nil
}

// requantizes reports whether the copy needs a different quantization_config, or none.
func (f *copyFlags) requantizes() bool { return f.plain != 0 || f.quantize != "" }

// schemes maps common names for the dtypes of quantised models to values of --quantize.
var schemes = map[string]quant.Scheme{
	"fp8": "fp8-block", "fp8-block": "fp8-block", "fp8-channel": "fp8-channel", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4",
	"int4": "int4", "int8": "int8",
}

// parseConversions parses the value of --dtype. A single dtype converts only floats that are
// numbers without scales, because narrower floats come with scales. A pair FROM=TO overrides it,
// wherever it stands.
func parseConversions(text string) (map[safetensors.DType]safetensors.DType, error) {
	convert := make(map[safetensors.DType]safetensors.DType)
	if text == "" {
		return convert, nil
	}
	pairs := make(map[safetensors.DType]bool) // the dtypes that a pair converts
	others := false                           // whether a single dtype was given
	for _, part := range strings.Split(text, ",") {
		from, to, explicit := strings.Cut(part, "=")
		if !explicit {
			to = from
		}
		if scheme, ok := schemes[strings.ToLower(to)]; ok {
			return nil, fmt.Errorf("--dtype %s: %s needs scales, which only --quantize computes: --quantize %s", text, to, scheme)
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
			if pairs[d] {
				return nil, fmt.Errorf("--dtype %s: it converts %v twice", text, d)
			}
			sources, pairs[d] = []safetensors.DType{d}, true
		} else if others {
			return nil, fmt.Errorf("--dtype %s: expected one DTYPE, or FROM=TO,... with at most one DTYPE for the others", text)
		}
		others = others || !explicit
		for _, d := range sources {
			if pairs[d] && !explicit {
				continue
			}
			none, _ := safetensors.NewTensor(d, []int{0}, []byte{})
			if _, err := none.Convert(target); err != nil {
				return nil, fmt.Errorf("%v cannot be converted to %v", d, target)
			}
			convert[d] = target
		}
	}
	return convert, nil
}
