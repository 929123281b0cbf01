package interop_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A sliceCase is one slice by numpy of an array that holds 0, 1, 2, and so on.
type sliceCase struct {
	Shape     []int
	Ranges    []string // as written in Python
	WantShape []int    `json:"want_shape"`
	Want      []int
}

// TestSliceAsNumpy compares slices with those of numpy.
func TestSliceAsNumpy(t *testing.T) {
	data := must(os.ReadFile("../testdata/slices.json"))
	var cases []sliceCase
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 300)

	for _, c := range cases {
		t.Run(strings.ReplaceAll(fmt.Sprint(c.Shape, c.Ranges), " ", ","), func(t *testing.T) {
			requireSliceAsNumpy[uint8](t, safetensors.U8, c)
			requireSliceAsNumpy[uint16](t, safetensors.U16, c)
			requireSliceAsNumpy[float32](t, safetensors.F32, c)
			requireSliceAsNumpy[uint64](t, safetensors.U64, c)
		})
	}
}

// requireSliceAsNumpy slices the tensor of a case from every kind of source, in one
// step and dimension by dimension.
func requireSliceAsNumpy[T uint8 | uint16 | float32 | uint64](t *testing.T, dtype safetensors.DType, c sliceCase) {
	t.Helper()
	count := 1
	for _, n := range c.Shape {
		count *= n
	}
	elements := make([]T, count)
	for i := range elements {
		elements[i] = T(i)
	}
	want := make([]T, len(c.Want))
	for i, index := range c.Want {
		want[i] = T(index)
	}
	ranges := make([]safetensors.Range, len(c.Ranges))
	for i, text := range c.Ranges {
		ranges[i] = parseRange(t, text)
	}

	for source, whole := range sources(t, dtype, c.Shape, elements) {
		message := fmt.Sprint(dtype, " ", source)
		once, err := whole.Slice(ranges...)
		require.NoError(t, err, message)

		// From the last dimension to the first: dropping one does not renumber those
		// that follow.
		stepwise := whole
		for i := len(ranges) - 1; i >= 0; i-- {
			step := make([]safetensors.Range, i+1)
			for j := range i {
				step[j] = safetensors.All()
			}
			step[i] = ranges[i]
			stepwise, err = stepwise.Slice(step...)
			require.NoError(t, err, message)
		}

		for _, got := range []safetensors.Tensor{once, stepwise} {
			require.Equal(t, dtype, got.DType(), message)
			requireShape(t, c.WantShape, got.Shape(), message)
			require.Equal(t, len(want), got.Len(), message)

			values, err := safetensors.Append([]T{42}, got)
			require.NoError(t, err, message)
			require.Equal(t, append([]T{42}, want...), values, message)

			var raw, wantRaw bytes.Buffer
			n, err := got.WriteTo(&raw)
			require.NoError(t, err, message)
			require.NoError(t, binary.Write(&wantRaw, binary.LittleEndian, want))
			require.Equal(t, wantRaw.String(), raw.String(), message)
			require.EqualValues(t, raw.Len(), n, message)

			view, err := safetensors.View[T](got)
			switch {
			case !contiguous(c.Want):
				require.ErrorIs(t, err, errors.ErrUnsupported, message)
			case source == "reader" && len(want) > 0:
				require.ErrorIs(t, err, errors.ErrUnsupported, message)
			case source == "reader" || bigEndian && dtype.Bits() > 8:
				if err != nil {
					require.ErrorIs(t, err, errors.ErrUnsupported, message)
				} else {
					require.Equal(t, want, append([]T{}, view...), message)
				}
			default:
				require.NoError(t, err, message)
				require.Equal(t, want, append([]T{}, view...), message)
				require.Equal(t, len(view), cap(view), message)
			}
		}
	}
}

// sources returns the same tensor from a Go slice, from a file in memory and from
// an io.ReaderAt. In the files it has a neighbor on either side, whose value reveals
// an index out of range.
func sources[T safetensors.Element](t *testing.T, dtype safetensors.DType, shape []int, elements []T) map[string]safetensors.Tensor {
	t.Helper()
	made := must(safetensors.NewTensor(dtype, shape, elements))
	neighbor := must(safetensors.NewTensor(dtype, nil, make([]T, 1)))
	var file bytes.Buffer
	tensors := map[string]safetensors.Tensor{"a": neighbor, "b": made, "c": neighbor}
	require.NoError(t, safetensors.Write(&file, tensors, nil))

	inMemory := must(must(safetensors.Parse(file.Bytes())).Tensor("b"))
	opened := must(safetensors.NewFile(bytes.NewReader(file.Bytes()), int64(file.Len())))
	return map[string]safetensors.Tensor{"slice": made, "memory": inMemory, "reader": must(opened.Tensor("b"))}
}

// parseRange reads one index or slice as Python spells it, such as "-1", ":",
// "::2" or "1:-2:3".
func parseRange(t *testing.T, text string) safetensors.Range {
	t.Helper()
	parts := strings.Split(text, ":")
	number := func(i int) int {
		n, err := strconv.Atoi(parts[i])
		require.NoError(t, err, text)
		return n
	}
	if len(parts) == 1 {
		return safetensors.At(number(0))
	}
	r := safetensors.All()
	if parts[0] != "" {
		r = safetensors.Span(number(0), number(1))
	}
	if len(parts) == 3 {
		r = r.By(number(2))
	}
	return r
}

// contiguous reports whether the indices follow one another without a gap.
func contiguous(indices []int) bool {
	for i, index := range indices {
		if index != indices[0]+i {
			return false
		}
	}
	return true
}
