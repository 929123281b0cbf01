package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

// mergeFlags are the flags of merge as they are given.
type mergeFlags struct {
	adapters     []string
	method       string
	weights      string
	normalize    bool
	maxShardSize string
	force        bool
}

func (c *command) merge() *cobra.Command {
	var f mergeFlags
	cmd := c.verb("merge MODEL... DST [--lora ADAPTER...] [--method METHOD] [flags]",
		"Merge models with each other, or adapters into a model", `
--lora adds the adapters of the Python package peft to one model: W + scale*B*A.

Without it, the models have the same tensors, of the same shapes, and METHOD is
  linear  the sum of the models, each times its weight (default 1/n each); --normalize
          divides the weights by their sum
  slerp   between two models, along the arc between each two tensors: --weights 1-T,T
          (default 0.5,0.5)
  task    the first model, and what distinguishes each other one from it, times its
          weight (default 1 each)

Everything is computed in float32 (float64 if the first model has that) in bounded
memory, and rounded once, or once for each adapter, to the dtype of the first model, whose
metadata DST has too. DST is what it is for cp.
`+sources, `
safetensors merge mistral merged --lora my-adapter
safetensors merge a.safetensors b.safetensors soup.safetensors --weights 0.6,0.4
safetensors merge base math code both --method task --weights 0.7,0.5
`, cobra.MatchAll(arguments(2, -1), stdinOnce), func(args []string) error {
			return c.mergeModels(args[:len(args)-1], args[len(args)-1], f)
		})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.adapters, "lora", nil, "merge the `ADAPTER`, a folder with adapter_config.json, into the model")
	flags.StringVar(&f.method, "method", "linear", "the `METHOD`: linear, slerp or task")
	flags.StringVar(&f.weights, "weights", "", "the weights of the models: `W,...`")
	flags.BoolVar(&f.normalize, "normalize", false, "divide the weights of linear by their sum")
	flags.StringVar(&f.maxShardSize, "max-shard-size", "", "split into shards of at most `SIZE`, such as 5GB")
	flags.BoolVar(&f.force, "force", false, "replace DST")
	cmd.MarkFlagsMutuallyExclusive("lora", "method")
	cmd.MarkFlagsMutuallyExclusive("lora", "weights")
	return cmd
}

// check checks what can be checked before anything is opened. It returns the weights,
// the default ones if none are given.
func (f *mergeFlags) check(models int) (weights []float64, err error) {
	lora := len(f.adapters) > 0
	switch {
	case f.normalize && (f.method != "linear" || lora):
		return nil, usage("--normalize goes with --method linear")
	case lora && models > 1:
		return nil, usage("--lora goes with one model, not with %d", models)
	case lora:
		f.method = "lora"
		return nil, nil
	case !slices.Contains([]string{"linear", "slerp", "task"}, f.method):
		return nil, usage("--method %s: expected linear, slerp or task", f.method)
	case models < 2:
		return nil, usage("there is one model: expected another one, or --lora")
	case f.method == "slerp" && models > 2:
		return nil, usage("--method slerp merges two models, not %d", models)
	}
	want, each := models, 1/float64(models)
	if f.method == "task" {
		want, each = models-1, 1
	}
	if f.weights == "" {
		return slices.Repeat([]float64{each}, want), nil
	}
	for _, text := range strings.Split(f.weights, ",") {
		w, err := strconv.ParseFloat(text, 64)
		if err != nil || w-w != 0 {
			return nil, usage("--weights %s: %q is no finite number", f.weights, text)
		}
		weights = append(weights, w)
	}
	if len(weights) != want {
		return nil, usage("--weights %s: expected %d numbers", f.weights, want)
	}
	if f.method == "slerp" && weights[0]+weights[1] != 1 {
		return nil, usage("--weights %s: the two weights of slerp are 1-T and T", f.weights)
	}
	if f.normalize {
		total := sumOf(weights)
		if total == 0 || math.IsInf(total, 0) {
			return nil, usage("--weights %s: their sum is %g", f.weights, total)
		}
		for i := range weights {
			weights[i] /= total
		}
	}
	return weights, nil
}

func sumOf(weights []float64) (total float64) {
	for _, w := range weights {
		total += w
	}
	return total
}

func (c *command) mergeModels(names []string, name string, f mergeFlags) error {
	weights, err := f.check(len(names))
	if err != nil {
		return err
	}
	if total := sumOf(weights); f.method == "linear" && math.Abs(total-1) > 1e-9 {
		c.opener.Note(fmt.Sprintf("the sum of the weights is %g; --normalize divides by it", total))
	}
	dst, err := c.openDestination(name, f.maxShardSize, 0)
	if err == nil {
		err = unoccupied(dst, f.force)
	}
	if err != nil {
		return err
	}
	var models []*source.Checkpoint
	read := int64(0)
	for _, name := range append(names[:len(names):len(names)], f.adapters...) {
		src, err := c.opener.Open(name)
		if err != nil {
			return err
		}
		defer src.Close()
		models = append(models, src)
		read += src.Size()
	}
	parts, err := takeParts(models[:len(names)])
	if err != nil {
		return err
	}
	tensors, err := mergeBy(f.method, models, weights)
	switch {
	case err != nil && len(parts) > 0:
		return fmt.Errorf("%w (%s of quantised tensors are left out of this: cp --dequantize makes numbers of them)", err, term.Plural(len(parts), "part"))
	case err != nil:
		return err
	}
	maps.Copy(tensors, parts)
	c.noteMetadata(name, names[0], models[0].Metadata)
	defer c.progress("merge", read)()
	if folder, ok := dst.(dest.Shared); ok && stemOf(models[0]) != format.Stem {
		maxBytes, _ := term.ParseBytes(f.maxShardSize) // 0 if it is not set
		set := &dest.Set{Metadata: models[0].Metadata, Force: f.force, AtOnce: 2}
		set.Shards, set.Index = dest.Split(tensors, maxBytes, stemOf(models[0]))
		return set.Write(folder)
	}
	return dst.Write(tensors, models[0].Metadata)
}

// takeParts takes the parts of quantised tensors out of models and returns them: they are no
// numbers to be merged, and have to be the same in all models.
func takeParts(models []*source.Checkpoint) (map[string]safetensors.Tensor, error) {
	all := make(map[string]safetensors.Tensor)
	for _, m := range models {
		layouts, err := quantisedParts(m)
		if err != nil {
			return nil, err
		}
		for name := range layouts {
			if t, ok := m.Tensors[name]; ok {
				all[name] = t
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		for _, m := range models {
			same, err := merge.Equal(t, m.Tensors[name])
			switch {
			case err != nil:
				return nil, fmt.Errorf("tensor %q: %w", name, term.Bare(err))
			case !same:
				return nil, fmt.Errorf("tensor %q is a part of a quantised one and not the same in all models: cp --dequantize makes numbers of it", name)
			}
			delete(m.Tensors, name)
		}
	}
	return all, nil
}

func addAdapters(base *source.Checkpoint, adapters []*source.Checkpoint) (map[string]safetensors.Tensor, error) {
	tensors := base.Tensors
	for _, adapter := range adapters {
		n := 0
		config, err := adapter.Folder.ReadFile("adapter_config.json")
		if err == nil {
			tensors, n, err = merge.LoRA(tensors, adapter.Tensors, config)
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("the adapter has no tensors")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", storage.Shown(adapter.Name), err)
		}
	}
	return tensors, nil
}

func mergeBy(method string, models []*source.Checkpoint, weights []float64) (map[string]safetensors.Tensor, error) {
	var all []map[string]safetensors.Tensor
	for _, m := range models {
		all = append(all, m.Tensors)
	}
	switch method {
	case "lora":
		return addAdapters(models[0], models[1:])
	case "slerp":
		return merge.Slerp(all[0], all[1], weights[1])
	case "task":
		return merge.Task(all[0], all[1:], weights)
	}
	return merge.Linear(all, weights)
}
