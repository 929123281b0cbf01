package quant

import (
	"maps"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// separateExperts returns the tensors of a checkpoint with the experts of Llama 4 as modules of their own. Its plain
// checkpoints store the weights of all experts of a layer in two tensors, but transformers (class
// SequentialLlama4TextExperts) and vLLM look in a quantised checkpoint for three matrices of each expert. The tensors of
// other models are returned unchanged, since their loaders look for the same names in both.
//
// The parameter gate_up_proj has the shape [experts, inputs, 2·hidden], with the gate before up, and down_proj has
// [experts, hidden, outputs]. A module of class Linear stores the transpose of each: a row for each of its outputs.
func separateExperts(tensors map[string]safetensors.Tensor) (map[string]safetensors.Tensor, error) {
	separated := maps.Clone(tensors)
	for name, both := range tensors {
		experts, ok := strings.CutSuffix(name, "gate_up_proj")
		down := tensors[experts+"down_proj"]
		if !ok || !strings.HasSuffix(experts, "feed_forward.experts.") || !isFused(name, both) || !isFused(name, down) {
			continue
		}
		shape, downShape := both.Shape(), down.Shape()
		n, hidden := shape[0], shape[2]/2
		if shape[2]%2 != 0 || downShape[0] != n || downShape[1] != hidden {
			continue
		}
		delete(separated, name)
		delete(separated, experts+"down_proj")
		for e := range n {
			module := experts + strconv.Itoa(e) + "."
			for _, part := range []struct {
				name        string
				of          safetensors.Tensor
				from, until int // the columns
			}{
				{"gate_proj.weight", both, 0, hidden}, {"up_proj.weight", both, hidden, 2 * hidden}, {"down_proj.weight", down, 0, downShape[2]},
			} {
				matrix, err := matrixOf(part.of, e, part.from, part.until)
				if err != nil {
					return nil, err
				}
				if _, exists := tensors[module+part.name]; exists {
					refuse(name, "its parts have the name %q, which another tensor has", module+part.name)
				}
				separated[module+part.name] = matrix
			}
		}
	}
	return separated, nil
}

// matrixOf returns the transpose of a range of columns of matrix e of a tensor with three dimensions.
func matrixOf(t safetensors.Tensor, e, from, until int) (safetensors.Tensor, error) {
	matrix, err := t.Slice(safetensors.At(e), safetensors.All(), safetensors.Span(from, until))
	if err != nil {
		return matrix, err
	}
	return matrix.Transpose()
}
