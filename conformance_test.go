package safetensors

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A conformanceCase is a line of testdata/cases.jsonl: a small file, the verdict
// that it deserves and, if that is accept, its table in offset order.
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

// UnmarshalJSON reads a row [name, dtype, shape, [begin, end]].
func (r *tableRow) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&r.Name, &r.DType, &r.Shape, &r.DataOffsets})
}

func conformanceCases(t testing.TB) []conformanceCase {
	text, err := os.ReadFile("testdata/cases.jsonl")
	require.NoError(t, err)
	var cases []conformanceCase
	for line := range bytes.Lines(text) {
		var c conformanceCase
		require.NoError(t, json.Unmarshal(line, &c))
		for _, row := range c.Tensors {
			if slices.ContainsFunc(row.Shape, func(dim int64) bool { return dim > math.MaxInt }) {
				c.Want = "reject" // on a 32-bit system
			}
		}
		cases = append(cases, c)
	}
	require.Len(t, cases, 321)
	return cases
}

func TestConformance(t *testing.T) {
	for _, c := range conformanceCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			require.False(t, c.Want == "accept" && c.Reference == "reject")
			f, err := Parse(c.File)
			checkVerdict(t, c, f, err)
			f, err = NewFile(bytes.NewReader(c.File), int64(len(c.File)))
			checkVerdict(t, c, f, err)
		})
	}
}

func checkVerdict(t *testing.T, c conformanceCase, f *File, err error) {
	if c.Want == "reject" {
		var broken *FormatError
		require.ErrorAs(t, err, &broken)
		require.NotEmpty(t, broken.Reason)
		require.LessOrEqual(t, broken.Offset, int64(len(c.File)))
		return
	}
	require.NoError(t, err)
	require.Equal(t, c.Metadata, f.Metadata())
	rows := []tableRow{}
	for _, info := range f.parts[0].header().Tensors {
		row := tableRow{Name: info.Name, DType: info.DType, Shape: []int64{}, DataOffsets: info.DataOffsets}
		for _, dim := range info.Shape {
			row.Shape = append(row.Shape, int64(dim))
		}
		rows = append(rows, row)
	}
	require.Equal(t, c.Tensors, rows)
	for _, row := range rows {
		tensor, err := f.Tensor(row.Name)
		require.NoError(t, err)
		require.Equal(t, row.DType, tensor.DType())
		require.Len(t, tensor.Shape(), len(row.Shape))
	}
}
