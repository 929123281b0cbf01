package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// fileOf returns a file with this header and a data buffer of dataSize zero bytes.
func fileOf(header string, dataSize int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, dataSize)...)
}

// llama70B returns the tensors of a model of this architecture. The real one has
// 80 layers: 723 tensors.
func llama70B(layers int) []TensorInfo {
	tensors := []TensorInfo{
		{Name: "lm_head.weight", DType: BF16, Shape: []int{32000, 8192}},
		{Name: "model.embed_tokens.weight", DType: BF16, Shape: []int{32000, 8192}},
	}
	for i := range layers {
		for _, p := range []struct {
			name  string
			shape []int
		}{
			{"input_layernorm", []int{8192}},
			{"mlp.down_proj", []int{8192, 28672}},
			{"mlp.gate_proj", []int{28672, 8192}},
			{"mlp.up_proj", []int{28672, 8192}},
			{"post_attention_layernorm", []int{8192}},
			{"self_attn.k_proj", []int{1024, 8192}},
			{"self_attn.o_proj", []int{8192, 8192}},
			{"self_attn.q_proj", []int{8192, 8192}},
			{"self_attn.v_proj", []int{1024, 8192}},
		} {
			tensors = append(tensors, TensorInfo{Name: fmt.Sprintf("model.layers.%d.%s.weight", i, p.name), DType: BF16, Shape: p.shape})
		}
	}
	return append(tensors, TensorInfo{Name: "model.norm.weight", DType: BF16, Shape: []int{8192}})
}

// headerText returns the header of a file with these tensors, and the size of its data buffer in
// bytes.
func headerText(t testing.TB, tensors []TensorInfo) (text []byte, dataSize int64) {
	t.Helper()
	text, bounds, err := encodeHeader(nil, tensors, map[string]string{"format": "pt"}, 0)
	require.NoError(t, err)
	return text[prefixSize:], bounds[len(tensors)]
}

// A conformanceCase is a line of testdata/cases.jsonl: a small file, the verdict
// it deserves and, if that is accept, its table in offset order.
type conformanceCase struct {
	Name      string
	File      []byte
	Want      string
	Reference string // the verdict of the reference implementation
	Tensors   []tableRow
	Metadata  map[string]string
}

// A tableRow is a TensorInfo whose dimensions need not fit an int.
type tableRow struct {
	Name        string
	DType       DType
	Shape       []int64
	DataOffsets [2]int64
}

// UnmarshalJSON reads a row [name, dtype, shape, [start, end]].
func (r *tableRow) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&r.Name, &r.DType, &r.Shape, &r.DataOffsets})
}

// conformanceCases returns the lines of testdata/cases.jsonl.
func conformanceCases(t testing.TB) []conformanceCase {
	t.Helper()
	text := must(os.ReadFile("testdata/cases.jsonl"))
	var cases []conformanceCase
	for line := range bytes.Lines(text) {
		var c conformanceCase
		require.NoError(t, json.Unmarshal(line, &c))
		for _, row := range c.Tensors {
			if slices.ContainsFunc(row.Shape, func(dim int64) bool { return dim > math.MaxInt }) {
				c.Want = "reject" // on a 32-bit system, a dimension that exceeds an int is refused
			}
		}
		cases = append(cases, c)
	}
	require.Len(t, cases, 321)
	return cases
}
