package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/spf13/cobra"
)

// completionTime and maxCompletions limit the completions, because the shell waits for them. They
// come from local files only.
const (
	completionTime = 2 * time.Second
	maxCompletions = 1000
)

// addCompletions adds the completions of arguments and flags. The shell completes SRC, and all
// other arguments and flags, with names of files.
func (c *command) addCompletions(root *cobra.Command) {
	flags := map[string]cobra.CompletionFunc{
		"only": c.completeNames, "except": c.completeNames, "targets": c.completeNames,
		"delete": c.completeMetadata, "dtype": completeDType,
		"dequantize": fixed("bf16", "f16", "f32"),
		"quantize":   fixed("fp8-block", "fp8-channel", "nvfp4", "mxfp4", "int4", "int8"),
		"method":     fixed("linear", "slerp", "task"),
		"sort":       fixed("size", "name"),
	}
	for _, name := range []string{"slice", "rename", "rtol", "atol", "weights", "max-shard-size", "align", "ranks", "depth", "meta", "hub", "variant"} {
		flags[name] = fixed()
	}
	root.RegisterFlagCompletionFunc("key", c.completeKey) // --key of sign is a file
	for _, cmd := range root.Commands() {
		for name, complete := range flags {
			cmd.RegisterFlagCompletionFunc(name, complete) // returns an error if cmd has no such flag
		}
		if slices.Contains([]string{"show", "stats", "meta"}, cmd.Name()) {
			cmd.ValidArgsFunction = c.completeArgument
		}
	}
}

// fixed completes with these texts.
func fixed(texts ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(texts, cobra.ShellCompDirectiveNoFileComp)
}

// completeArgument completes SRC, and after it the names of tensors.
func (c *command) completeArgument(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return nil, cobra.ShellCompDirectiveDefault
	case cmd.Name() == "stats", cmd.Name() == "show" && len(args) == 1:
		return c.completeNames(cmd, args[:1], typed)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// offer returns the texts that get returns for the local sources, as far as they start with typed.
// It omits texts that a shell would not take literally: the shell inserts their common prefix
// unquoted, and evaluates it at the next completion.
func (c *command) offer(sources []string, typed string, get func(o *source.Opener, name string) ([]string, error)) (found []string) {
	ctx, cancel := context.WithTimeout(c.ctx, completionTime)
	defer cancel()
	o := &source.Opener{Session: storage.Session{Context: ctx}, Key: c.opener.Key, Variant: c.opener.Variant, Local: true}
	for _, name := range sources {
		texts, _ := get(o, name)
		for _, text := range texts {
			if strings.HasPrefix(text, typed) && isPlain(text) {
				found = append(found, text)
			}
		}
	}
	return found
}

// fromSource returns a func for offer that opens a source, with all models of a folder, and returns
// the result of names for it.
func fromSource(names func(*source.Checkpoint) []string) func(o *source.Opener, name string) ([]string, error) {
	return func(o *source.Opener, name string) ([]string, error) {
		open := o.Open
		if models, err := o.Models(name); err == nil && len(belowOf(models)) > 0 {
			open = func(name string) (*source.Checkpoint, error) { return openEach(name, models, o.Open) }
		}
		src, err := open(name)
		if err != nil {
			return nil, err
		}
		defer src.Close()
		return names(src), nil
	}
}

// completeNames completes the names of tensors level by level, as shells complete paths.
func (c *command) completeNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names := c.offer(args, typed, fromSource(func(src *source.Checkpoint) []string { return src.Order }))
	slices.Sort(names)
	found := levels(slices.Compact(names), typed)
	directive := cobra.ShellCompDirectiveNoFileComp
	if slices.ContainsFunc(found, func(name string) bool { return strings.HasSuffix(name, ".") }) {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return found[:min(len(found), maxCompletions)], directive
}

// levels cuts each name after the first dot beyond typed, and returns the different results. A name
// whose result no other name shares is not cut. If all names have the same result, levels cuts them
// at the next dot instead.
func levels(names []string, typed string) []string {
	below := make(map[string][]string)
	for _, name := range names {
		level := name
		if dot := strings.IndexByte(name[len(typed):], '.'); dot >= 0 {
			level = name[:len(typed)+dot+1]
		}
		below[level] = append(below[level], name)
	}
	var found []string
	for level, names := range below {
		if len(names) == 1 {
			level = names[0]
		} else if len(below) == 1 {
			return levels(names, level)
		}
		found = append(found, level)
	}
	slices.Sort(found)
	return found
}

// completeKey completes --key with the keys of the sources.
func (c *command) completeKey(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	keys := func(o *source.Opener, name string) ([]string, error) { return o.Keys(name, maxCompletions) }
	return c.offer(args, typed, keys), cobra.ShellCompDirectiveNoFileComp
}

// completeMetadata completes --delete with the keys of the metadata.
func (c *command) completeMetadata(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	keys := fromSource(func(src *source.Checkpoint) []string { return slices.Sorted(maps.Keys(src.Metadata)) })
	found := c.offer(args[:min(len(args), 1)], typed, keys)
	return found[:min(len(found), maxCompletions)], cobra.ShellCompDirectiveNoFileComp
}

// completeDType completes the last dtype of FROM=TO,... with the dtypes to which floats can be
// converted.
func completeDType(_ *cobra.Command, _ []string, typed string) (found []string, _ cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexAny(typed, ",=")+1]
	for d := range safetensors.DTypes() {
		none, _ := safetensors.NewTensor(safetensors.F32, []int{0}, []byte{})
		text := before + strings.ToLower(d.String())
		if _, err := none.Convert(d); err == nil && strings.HasPrefix(text, typed) {
			found = append(found, text)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// isPlain reports whether a name is a word that every shell takes literally, and not a flag.
func isPlain(name string) bool {
	const maxLen = 1000
	return name != "" && len(name) <= maxLen && !strings.HasPrefix(name, "-") &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-/+", r)
		})
}
