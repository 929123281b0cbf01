// Lora merges a LoRA adapter (Hu et al., arXiv:2106.09685) into the weights of a
// base model: W' = W + (alpha/r)·B·A.
//
//	go run ./examples/lora testdata/model.safetensors examples/lora/testdata /tmp/merged
//
// The operands are a base model (a file, a folder or an index), the folder of an
// adapter of the Python package peft, and a folder for the shards. Merged tensors
// are BF16, the others stay as they are. A merged tensor is computed when it is
// written, so that the memory needed does not depend on the size of the model.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "lora:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: lora BASE ADAPTER OUTDIR")
	}
	base, err := safetensors.Open(args[0])
	if err != nil {
		return err
	}
	defer base.Close()
	adapter, err := safetensors.Open(filepath.Join(args[1], "adapter_model.safetensors"))
	if err != nil {
		return err
	}
	defer adapter.Close()
	scale, err := readScale(filepath.Join(args[1], "adapter_config.json"))
	if err != nil {
		return err
	}
	tensors := maps.Collect(base.Tensors())
	merged, err := merge(tensors, maps.Collect(adapter.Tensors()), scale)
	if err != nil {
		return err
	}
	if err := safetensors.WriteShards(args[2], tensors, base.Metadata(), 5_000_000_000); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "merged %d of %d tensors with scale %g into %s\n", merged, len(tensors), scale, args[2])
	return nil
}

// readScale returns the factor of B·A from the configuration of an adapter.
func readScale(name string) (float32, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	var c struct {
		R            int            `json:"r"`
		Alpha        float64        `json:"lora_alpha"`
		RSLoRA       bool           `json:"use_rslora"` // Kalajdzievski, arXiv:2312.03732
		FanInFanOut  bool           `json:"fan_in_fan_out"`
		RankPattern  map[string]any `json:"rank_pattern"`
		AlphaPattern map[string]any `json:"alpha_pattern"`
	}
	switch err := json.Unmarshal(text, &c); {
	case err != nil:
		return 0, fmt.Errorf("%s: %w", name, err)
	case c.FanInFanOut:
		return 0, fmt.Errorf("%s: fan_in_fan_out is set; weights stored as [in, out] are not supported", name)
	case c.R < 1 || len(c.RankPattern)+len(c.AlphaPattern) > 0:
		return 0, fmt.Errorf("%s: r must be positive, and the same for all tensors: no rank_pattern, no alpha_pattern", name)
	case c.RSLoRA:
		return float32(c.Alpha / math.Sqrt(float64(c.R))), nil
	}
	return float32(c.Alpha / float64(c.R)), nil
}

// merge replaces each tensor that has an adapter by the merged one, which is not
// computed yet, and returns their number.
func merge(tensors, adapter map[string]safetensors.Tensor, scale float32) (merged int, err error) {
	for _, name := range slices.Sorted(maps.Keys(adapter)) {
		stem, isB := strings.CutSuffix(strings.TrimSuffix(name, ".lora_A.weight"), ".lora_B.weight")
		target := strings.TrimPrefix(stem, "base_model.model.") + ".weight"
		w, inBase := tensors[target]
		a, hasA := adapter[stem+".lora_A.weight"]
		b, hasB := adapter[stem+".lora_B.weight"]
		switch {
		case !hasA || !hasB:
			return 0, fmt.Errorf("adapter tensor %q is not one of a pair lora_A.weight, lora_B.weight", name)
		case !inBase:
			return 0, fmt.Errorf("adapter tensor %q: the base model has no tensor %q", name, target)
		case isB:
			if tensors[target], err = add(w, b, a, scale); err != nil {
				return 0, fmt.Errorf("tensor %q: %w", target, err)
			}
			merged++
		}
	}
	return merged, nil
}

// add returns w + scale·b·a in BF16.
func add(w, b, a safetensors.Tensor, scale float32) (safetensors.Tensor, error) {
	s := slices.Concat(w.Shape(), b.Shape(), a.Shape()) // out, in, out, r, r, in
	if len(w.Shape()) != 2 || len(b.Shape()) != 2 || len(s) != 6 || s[0] != s[2] || s[1] != s[5] || s[3] != s[4] {
		return w, fmt.Errorf("the shapes do not match: base %v, lora_B %v, lora_A %v", w, b, a)
	}
	return safetensors.NewTensorFunc(safetensors.BF16, w.Shape(), func(sum []float32) error {
		_, errW := safetensors.Append(sum[:0], w)
		left, errB := safetensors.Append[float32](nil, b)
		right, errA := safetensors.Append[float32](nil, a)
		if err := errors.Join(errW, errB, errA); err != nil {
			return err
		}
		addProduct(sum, left, right, s[3], s[1], scale)
		return nil
	})
}

// addProduct adds scale·b·a to w. One goroutine is enough, as WriteShards computes
// several tensors concurrently. A real program calls BLAS here.
func addProduct(w, b, a []float32, r, in int, scale float32) {
	for i := range len(w) / max(in, 1) {
		row := w[i*in:][:in]
		for k := range r {
			factor := scale * b[i*r+k]
			for j, v := range a[k*in:][:in] {
				row[j] += factor * v
			}
		}
	}
}
