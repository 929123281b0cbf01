package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/spf13/pflag"
)

// copyFlags are the flags of cp as given, and their parsed values, which check sets.
type copyFlags struct {
	dtypes           []string
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
	converted           map[safetensors.DType]bool // keys of conversions that FROM= names
	pairs               map[string]string
	plain               safetensors.DType // dtype of dequantised tensors; 0 if nothing is dequantised
}

// addTo adds the flags that cp and merge have in common.
func (f *copyFlags) addTo(flags *pflag.FlagSet) {
	f.given = flags
	flags.StringArrayVar(&f.dtypes, "dtype", nil, "convert F64, F32, F16 and BF16 tensors to `DTYPE`; FROM=TO converts only FROM, which can be any float dtype; both forms may be joined: bf16,f32=f32 converts to BF16, but leaves F32 as it is")
	flags.StringVar(&f.maxShardSize, "max-shard-size", "", "split into shards of at most `SIZE`, such as 5GB or 512MiB; a larger tensor has a shard of its own")
	flags.BoolVar(&f.withFiles, "with-files", false, "copy the small files next to the weights, too: configuration, tokenizers")
	flags.BoolVar(&f.force, "force", false, "replace DST")
}

// maxAlign is the largest alignment of the data in bytes. The header aligns the data with spaces,
// and may have at most 100,000,000 bytes.
const maxAlign = 1 << 26

// check parses the values of the flags. It returns a usageError for a value that is invalid, and for flags that
// do not go together.
func (f *copyFlags) check() error {
	var errs [5]error
	f.selection, errs[0] = pattern.ParseSelection(f.only, f.except)
	f.renaming, errs[1] = pattern.Each(f.renames, pattern.ParseRename)
	f.conversions, f.converted, errs[2] = parseConversions(strings.Join(f.dtypes, ","))
	if f.pairs, errs[3] = parsePairs(f.meta); errs[3] != nil {
		errs[3] = fmt.Errorf("--meta: %w", errs[3])
	}
	f.targeted, errs[4] = pattern.ParseSelection(f.targets, nil)
	f.targeted = f.targeted.Named("--targets")
	var noDType error
	if f.dequantize != "" {
		f.plain, noDType = parseDType(f.dequantize)
	}
	switch err := cmp.Or(errs[:]...); {
	case err != nil:
		return usageError{err}
	case noDType != nil, !slices.Contains([]safetensors.DType{0, safetensors.BF16, safetensors.F16, safetensors.F32}, f.plain):
		return usage("--dequantize %s: expected bf16, f16 or f32, as in --dequantize bf16", f.dequantize)
	case f.quantize == "" && len(f.targets) > 0:
		return usage("--targets needs --quantize")
	case f.given.Changed("align") && (f.align < 1 || f.align&(f.align-1) != 0 || f.align > maxAlign):
		return usage("--align %d: expected a power of two of bytes, at most %d", f.align, maxAlign)
	case f.given.Changed("ranks") && f.ranks == 0:
		return usage("--ranks 0: expected the number of ranks")
	case f.quantize != "" && !slices.Contains(slices.Collect(maps.Values(schemes)), f.quantize):
		return usage("--quantize %s: expected fp8-block, fp8-channel, nvfp4, mxfp4, int4 or int8", f.quantize)
	}
	for _, name := range notWithRanks {
		if f.ranks != 0 && f.given.Changed(name) {
			return usage("--ranks and --%s cannot be combined", name)
		}
	}
	return nil
}

// notWithRanks are the flags of cp that make no sense for the files of ranks: these have neither shards nor an alignment.
var notWithRanks = []string{"part", "max-shard-size", "align"}

// requantizes reports whether the copy needs a different quantization_config, or none.
func (f *copyFlags) requantizes() bool { return f.plain != 0 || f.quantize != "" }

// schemes maps common names for the dtypes of quantised models to values of --quantize. All values
// are among them.
var schemes = map[string]quant.Scheme{
	"fp8": "fp8-block", "fp8-block": "fp8-block", "fp8-channel": "fp8-channel", "nvfp4": "nvfp4", "fp4": "nvfp4", "mxfp4": "mxfp4",
	"int4": "int4", "int8": "int8",
}

// parseConversions parses the values of --dtype, joined with commas. A single dtype converts only
// floats that are numbers without scales, because narrower floats come with scales. A pair FROM=TO
// overrides it, wherever it stands. pairs has the dtypes that a pair converts.
func parseConversions(text string) (convert map[safetensors.DType]safetensors.DType, pairs map[safetensors.DType]bool, err error) {
	convert, pairs = make(map[safetensors.DType]safetensors.DType), make(map[safetensors.DType]bool)
	if text == "" {
		return convert, pairs, nil
	}
	others := false // whether a dtype without FROM= was given, for the dtypes that no pair converts
	for _, part := range strings.Split(text, ",") {
		from, to, explicit := strings.Cut(part, "=")
		if !explicit {
			to = from
		}
		if scheme, ok := schemes[strings.ToLower(to)]; ok {
			return nil, nil, fmt.Errorf("--dtype %s: %s needs scales, which only --quantize computes: --quantize %s", text, to, scheme)
		}
		target, err := parseDType(to)
		if err != nil {
			return nil, nil, fmt.Errorf("--dtype %s: %w", text, err)
		}
		sources := []safetensors.DType{safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16}
		if explicit {
			d, err := parseDType(from)
			if err != nil {
				return nil, nil, fmt.Errorf("--dtype %s: %w", text, err)
			}
			if pairs[d] {
				return nil, nil, fmt.Errorf("--dtype %s: it converts %v twice", text, d)
			}
			sources, pairs[d] = []safetensors.DType{d}, true
		} else if others {
			return nil, nil, fmt.Errorf("--dtype %s: expected one DTYPE, or FROM=TO,... with at most one DTYPE for the others", text)
		}
		others = others || !explicit
		for _, d := range sources {
			if pairs[d] && !explicit {
				continue
			}
			none, _ := safetensors.NewTensor(d, []int{0}, []byte{})
			if _, err := none.Convert(target); err != nil {
				from := d.String()
				if !explicit {
					from = "floats"
				}
				return nil, nil, fmt.Errorf("--dtype %s: %s cannot be converted to %v", text, from, target)
			}
			convert[d] = target
		}
	}
	return convert, pairs, nil
}
