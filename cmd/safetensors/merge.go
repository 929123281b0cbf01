package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

// mergeFlags are the flags of merge as given.
type mergeFlags struct {
	copyFlags
	adapters  []string
	method    string
	weights   string
	normalize bool
}

func (c *command) merge() *cobra.Command {
	var f mergeFlags
	cmd := c.verb("merge MODEL... DST [--lora ADAPTER]... [--method METHOD] [--json] [flags]",
		"Merge models with each other, or adapters into a model", `
To join shards or files with different tensors, use cp.

--lora adds adapters of the Python package peft to one model: W + scale*B*A.

Without --lora, all models must have the same tensors, of the same shapes. METHOD is
  linear  the sum of the models, each times its weight (default 1/n each); --normalize
          divides the weights by their sum
  slerp   a point between two models, on the arc between each two tensors: --weights 1-T,T
          (default 0.5,0.5)
  task    the first model plus its difference to each other model, times the weight of
          that model (default 1 each)

Numbers are computed in float32, or in float64 for a tensor that is F64 in the first
model, in bounded memory. Each result is rounded to the dtype that its tensor has in the
first model, or to --dtype. It is rounded once. With several --lora and without
--dtype, it is rounded after each adapter.
DST has the metadata, the shards and the config.json that cp would make of the first
model; --with-files copies the files of that model.

--json prints one line about what was written:
  {"file": DST, "total": {"tensors", "parameters", "bytes"},
   "files": [the other files: a new config.json, those of --with-files]}
`+sources, `
safetensors merge mistral merged --lora my-adapter
safetensors merge a.safetensors b.safetensors soup.safetensors --weights 0.6,0.4
safetensors merge base math code both --method task --weights 0.7,0.5
`, cobra.MatchAll(arguments(2, -1), stdinOnce), func(args []string) error {
			return c.mergeModels(args[:len(args)-1], args[len(args)-1], &f)
		})
	flags := cmd.Flags()
	flags.StringArrayVar(&f.adapters, "lora", nil, "merge the `ADAPTER`, a folder with adapter_config.json, into the model")
	flags.StringVar(&f.method, "method", "linear", "merge by `METHOD`: linear, slerp or task")
	flags.StringVar(&f.weights, "weights", "", "the weights `W,...` of the models, as 0.6,0.4")
	flags.BoolVar(&f.normalize, "normalize", false, "divide the weights of linear by their sum")
	f.addTo(flags)
	return cmd
}

// checkMethod checks the flags before any source is opened. It returns the weights, or the default
// weights if none are given.
func (f *mergeFlags) checkMethod(models int) (weights []float64, err error) {
	lora := len(f.adapters) > 0
	switch {
	case lora && f.given.Changed("method"):
		return nil, usage("--lora adds adapters to one model, and --method merges models: they cannot be combined")
	case lora && f.given.Changed("weights"):
		return nil, usage("--lora adds adapters with the scale in their adapter_config.json, without --weights")
	case f.normalize && lora:
		return nil, usage("--normalize is for the weights of models, and --lora has none")
	case f.normalize && f.method != "linear":
		return nil, usage("--normalize needs --method linear")
	case lora && models > 1:
		return nil, usage("--lora takes one model, not %d; for several adapters, repeat --lora", models)
	case lora:
		f.method = "lora"
		return nil, nil
	case !slices.Contains([]string{"linear", "slerp", "task"}, f.method):
		return nil, usage("--method %s: expected linear, slerp or task", f.method)
	case models < 2:
		return nil, usage("the last argument is DST, which leaves one model: name another model, or --lora; to join shards: cp SRC DST")
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
		text = strings.TrimSpace(text)
		w, err := strconv.ParseFloat(text, 64)
		if err != nil || w-w != 0 {
			return nil, usage("--weights %s: %q is not a finite number", f.weights, text)
		}
		weights = append(weights, w)
	}
	if len(weights) != want {
		each := "each model"
		if f.method == "task" {
			each += " after the first"
		}
		if len(weights) == want+1 {
			each += "; the last argument is DST"
		}
		return nil, usage("--weights %s: expected %s, one for %s", f.weights, term.Plural(want, "number"), each)
	}
	if f.method == "slerp" && weights[0]+weights[1] != 1 {
		return nil, usage("--weights %s: the two weights of slerp are 1-T and T", f.weights)
	}
	if f.normalize {
		total := sumOf(weights)
		if !canDivideBy(total) {
			return nil, usage("--weights %s: their sum is %g", f.weights, total)
		}
		for i := range weights {
			weights[i] /= total
		}
	}
	return weights, nil
}

// canDivideBy reports whether weights can be divided by their sum.
func canDivideBy(total float64) bool { return total != 0 && !math.IsInf(total, 0) }

// trailingNumbers returns the numbers at the end of the arguments.
func trailingNumbers(args []string) []string {
	i := len(args)
	for ; i > 0; i-- {
		if _, err := strconv.ParseFloat(args[i-1], 64); err != nil {
			break
		}
	}
	return args[i:]
}

func sumOf(weights []float64) (total float64) {
	for _, w := range weights {
		total += w
	}
	return total
}

func (c *command) mergeModels(names []string, name string, f *mergeFlags) error {
	weights, err := f.checkMethod(len(names))
	if loose := trailingNumbers(append(slices.Clip(names), name)); err != nil && f.weights != "" && len(loose) > 0 {
		return usage("--weights %s %s: join numbers by commas: --weights %s", f.weights, strings.Join(loose, " "), strings.Join(append([]string{f.weights}, loose...), ","))
	}
	if err == nil {
		err = f.check()
	}
	if err == nil {
		err = c.checkJSON(name)
	}
	if err != nil {
		return err
	}
	if total := sumOf(weights); f.method == "linear" && math.Abs(total-1) > 1e-9 {
		note := fmt.Sprintf("the sum of the weights is %g", total)
		if canDivideBy(total) {
			note += "; --normalize divides by it"
		}
		c.opener.Note(note)
	}
	to, err := c.openTarget(name, &f.copyFlags, 1)
	if err != nil {
		return err
	}
	if err := c.oneModel(names, "merge takes one"); err != nil {
		return err
	}
	c.opener.KeyOfSome = true
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
	if err := c.opener.CheckKey(models...); err != nil {
		return err
	}
	w, err := jobOf(models[0], &f.copyFlags)
	if err == nil {
		err = w.merge(models, len(names), weights, f.method)
	}
	if err == nil {
		err = w.prepare()
	}
	if err != nil {
		return err
	}
	w.read = read
	result, err := c.writeCopy("merge", w, to)
	if err != nil {
		return err
	}
	return c.print(result, func() {})
}

// merge replaces the tensors of the job's source, which is the first model, with the merged
// tensors. The first n of models are models, and the others are adapters.
func (w *copyJob) merge(models []*source.Checkpoint, n int, weights []float64, method string) error {
	for i, m := range models {
		names := m.Unread()
		if i == 0 { // the result would lack its objects, too
			names = slices.Sorted(maps.Keys(m.Refused))
		}
		if err := refusedWith(m, names, "cp --except makes a copy without what cannot be read"); err != nil {
			return err
		}
	}
	for _, m := range models[:n] {
		if merge.IsAdapter(m.Order) {
			return fmt.Errorf("%s is an adapter, not a model: --lora merges it into one", storage.Shown(m.Name))
		}
	}
	for i, m := range models[1:n] {
		m, err := namedLike(m, models[0])
		if err != nil {
			return err
		}
		if models[i+1] = m; disjoint(models[0], m) {
			return fmt.Errorf("%s and %s have no tensor in common; to join shards or files: cp SRC... DST", storage.Shown(models[0].Name), storage.Shown(m.Name))
		}
	}
	parts, err := takeParts(models[:n])
	if err != nil {
		return err
	}
	if err := w.widen(); err != nil {
		return err
	}
	w.bases = make(map[string]safetensors.Tensor)
	if method != "lora" {
		maps.Copy(w.bases, w.src.Tensors)
	}
	tensors, err := w.mergeBy(method, models, weights)
	err = tiedAdvice(err, models)
	var missing *merge.MissingError
	switch {
	case errors.As(err, &missing) && hasModule(parts, missing.Name):
		return fmt.Errorf("%q of the base is quantised: cp --dequantize first", missing.Name)
	case err != nil && len(parts) > 0:
		return fmt.Errorf("%w (%s of quantised tensors are left out of this: cp --dequantize makes numbers of them)", err, term.Plural(len(parts), "part"))
	case err != nil && method != "lora":
		return fmt.Errorf("%w (%s)", err, numbered(models))
	case err != nil:
		return err
	}
	if method != "lora" {
		if err := w.untie(models); err != nil {
			return err
		}
	}
	maps.Copy(tensors, parts)
	w.src.Tensors, w.made, w.sources = tensors, true, models
	return nil
}

// numbered returns the names of models with the numbers that errors give them.
func numbered(models []*source.Checkpoint) string {
	texts := []string{"the first is " + storage.Shown(models[0].Name)}
	for i, m := range models[1:] {
		texts = append(texts, fmt.Sprintf("model %d is %s", i+2, storage.Shown(m.Name)))
	}
	return strings.Join(texts, ", ")
}

// hasModule reports whether parts of quantised tensors belong to the module that has the tensor name.
func hasModule(parts map[string]safetensors.Tensor, name string) bool {
	module := strings.TrimSuffix(name, "weight")
	for part := range parts {
		if part == name || strings.HasSuffix(module, ".") && strings.HasPrefix(part, module) {
			return true
		}
	}
	return false
}

// disjoint reports whether two models have no tensor in common, although they have tensors.
func disjoint(a, b *source.Checkpoint) bool {
	common := slices.ContainsFunc(b.Order, func(name string) bool {
		_, ok := a.Tensors[name]
		return ok
	})
	return !common && len(a.Order)+len(b.Order) > 0
}

// widen converts the tensors that --dtype converts to float32 first, so that the merged tensors are
// rounded only once.
func (w *copyJob) widen() error {
	w.widened = make(map[string]safetensors.DType)
	tensors := maps.Clone(w.src.Tensors)
	for name, t := range tensors {
		d := t.DType()
		to := w.conversions[d]
		if to == 0 || to == d || d != safetensors.F16 && d != safetensors.BF16 {
			continue
		}
		wide, err := t.Convert(safetensors.F32)
		if err != nil {
			return ofTensor(name, err)
		}
		tensors[name], w.widened[name] = wide, d
	}
	w.src.Tensors = tensors
	return nil
}

// takeParts removes the parts of quantised tensors from models and returns them. They are not
// numbers that can be merged, and must be equal in all models.
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
				return nil, ofTensor(name, err)
			case !same:
				return nil, fmt.Errorf("tensor %q is a part of a quantised one and not the same in all models: cp --dequantize makes numbers of it", name)
			}
			delete(m.Tensors, name)
		}
	}
	return all, nil
}

func (w *copyJob) mergeBy(method string, models []*source.Checkpoint, weights []float64) (map[string]safetensors.Tensor, error) {
	var all []map[string]safetensors.Tensor
	for _, m := range models {
		all = append(all, m.Tensors)
	}
	switch method {
	case "lora":
		return w.addAdapters(models[1:])
	case "slerp":
		return merge.Slerp(all[0], all[1], weights[1])
	case "task":
		return merge.Task(all[0], all[1:], weights)
	}
	return merge.Linear(all, weights)
}
