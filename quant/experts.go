package quant

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A plain checkpoint of Llama 4 has two tensors with the weights of all experts of a layer: gate_up_proj, of the shape
// [experts, inputs, 2·hidden], with the gate before up, and down_proj, of the shape [experts, hidden, outputs]. In a
// quantised checkpoint, each expert has three matrices of its own, each the transpose of a part of these: transformers
// (class SequentialLlama4TextExperts) and vLLM look for them. Loaders of other models look for the same names in plain and
// in quantised checkpoints.

const (
	ofExperts = "feed_forward.experts." // part of the names of all these tensors
	gateUp    = "gate_up_proj"          // last part of the name of one of the two tensors
	downOf    = "down_proj"             // last part of the name of the other one
)

// maxSeparated is the largest number of matrices that separateExperts makes. The largest model has 9,216. A small file may
// have a tensor of a hundred million experts, whose elements share their bytes.
const maxSeparated = 1 << 20

// separateExperts returns the tensors of a checkpoint with each expert of Llama 4 as three matrices. tensors is not modified.
// If a matrix would get the name of another tensor, or if there are more than maxSeparated matrices, separateExperts panics
// with a problem.
func separateExperts(tensors map[string]safetensors.Tensor) (map[string]safetensors.Tensor, error) {
	result := maps.Clone(tensors)
	made := 0
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		both := tensors[name]
		start, ok := strings.CutSuffix(name, gateUp)
		down := tensors[start+downOf]
		if !ok || !strings.HasSuffix(start, ofExperts) || !isFused(name, both) || !isFused(name, down) {
			continue
		}
		shape, downShape := both.Shape(), down.Shape()
		n, hidden := shape[0], shape[2]/2
		if shape[2]%2 != 0 || downShape[0] != n || downShape[1] != hidden {
			continue
		}
		if n > (maxSeparated-made)/3 {
			refuse(name, "all experts together have more than %d matrices", maxSeparated)
		}
		made += 3 * n
		delete(result, name)
		delete(result, start+downOf)
		for e := range n {
			names := expertNames(start, e)
			for i, part := range []struct {
				of          safetensors.Tensor
				from, until int // first column, and the one after the last
			}{{both, 0, hidden}, {both, hidden, 2 * hidden}, {down, 0, downShape[2]}} {
				if _, exists := tensors[names[i]]; exists {
					refuse(name, "its parts have the name %s, which another tensor has", quote(names[i]))
				}
				matrix, err := part.of.Slice(safetensors.At(e), safetensors.All(), safetensors.Span(part.from, part.until))
				if err != nil {
					return nil, err
				}
				if result[names[i]], err = matrix.Transpose(); err != nil {
					return nil, err
				}
			}
		}
	}
	return result, nil
}

// expertNames returns the names of the matrices of expert e: gate, up and down. start is the text before the number of the
// expert, which all experts of a layer have in common.
func expertNames(start string, e int) []string {
	start += strconv.Itoa(e)
	return []string{start + ".gate_proj.weight", start + ".up_proj.weight", start + ".down_proj.weight"}
}
