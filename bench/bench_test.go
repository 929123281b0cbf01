package bench

import (
	"io"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
	"github.com/stretchr/testify/require"
)

// TestQuick runs every work of the Go contestants once on small inputs.
func TestQuick(t *testing.T) {
	b := &Bench{Dir: t.TempDir(), RAMDir: t.TempDir(), Counts: 1, Quick: true, Log: io.Discard}
	require.NoError(t, b.Run(regexp.MustCompile("")))
	for _, r := range b.Results {
		if r.Case == "one ignored field" && r.Contestant == "nlpodyssey" {
			require.NotEmpty(t, r.Err) // knows no other fields
			continue
		}
		require.Empty(t, r.Err, "%s, %s: %s", r.Work, r.Case, r.Contestant)
		require.NotEmpty(t, r.Samples)
	}
	require.NoError(t, b.Report(io.Discard, About{}, "charts"))
	require.NoError(t, b.Charts(t.TempDir()))
}

// TestRatio has a machine that is three times as slow in every other turn.
func TestRatio(t *testing.T) {
	ours := Result{Samples: []time.Duration{10, 30, 10, 30}}
	theirs := Result{Samples: []time.Duration{20, 60, 22}} // takes fewer turns
	require.Equal(t, 2.0, theirs.Ratio(ours))
	require.Equal(t, time.Duration(22), theirs.Median())
	require.Equal(t, time.Duration(20), ours.Median())
	require.Zero(t, Result{}.Ratio(ours))
}

// TestReaders shows that all readers find the table that was written.
func TestReaders(t *testing.T) {
	b := &Bench{Dir: t.TempDir(), Quick: true}
	inputs, err := b.headerInputs()
	require.NoError(t, err)
	for _, in := range inputs {
		file, err := mapFile(in.path)
		require.NoError(t, err)
		defer unmap(file)
		want, err := unmarshal(file)
		require.NoError(t, err)
		for _, r := range readers() {
			table, err := r.read(file)
			require.NoError(t, err, r.name)
			require.Equal(t, want, plainTable(t, file, table), "%s: %s", r.name, in.name)
		}
	}
}

// plainTable returns what a reader has read in one form for all.
func plainTable(t *testing.T, file []byte, read any) map[string]plainEntry {
	plain := make(map[string]plainEntry)
	add := func(name, dtype string, shape []int, offset, length int64) {
		if _, twice := plain[name]; twice {
			t.Errorf("%q twice", name)
		}
		plain[name] = plainEntry{dtype, shape, [2]int64{offset, offset + length}}
	}
	switch read := read.(type) {
	case map[string]plainEntry:
		return read
	case *safetensors.Header:
		for _, info := range read.Tensors {
			begin, end := info.DataOffsets[0], info.DataOffsets[1]
			add(info.Name, info.DType.String(), info.Shape, begin, end-begin)
		}
	case *safetensors.File:
		var offset int64
		for name, tensor := range read.Tensors() { // in the order of their data, which has no gaps
			length := int64(tensor.Len()) * int64(tensor.DType().Bits()) / 8
			add(name, tensor.DType().String(), tensor.Shape(), offset, length)
			offset += length
		}
	case *maruel.File:
		for _, tensor := range read.Tensors {
			add(tensor.Name, string(tensor.DType), ints(tensor.Shape), position(file, tensor.Data), int64(len(tensor.Data)))
		}
	case nlpodyssey.SafeTensors:
		for _, tensor := range read.Tensors() {
			view := tensor.TensorView
			add(tensor.Name, view.DType().String(), ints(view.Shape()), position(file, view.Data()), int64(len(view.Data())))
		}
	default:
		t.Fatalf("unknown table %T", read)
	}
	return plain
}

// position returns where a part of the data of a file begins: the slices of
// both peers reach to the end of the file.
func position(file, data []byte) int64 {
	return int64(cap(file)-cap(data)) - 8 - int64(len(headerOf(file)))
}

func ints(shape []uint64) []int {
	out := make([]int, len(shape))
	for i, dim := range shape {
		out[i] = int(dim)
	}
	return out
}

// TestEvict shows that a cold run is one.
func TestEvict(t *testing.T) {
	path := t.TempDir() + "/file"
	require.NoError(t, filledFile(path, make([]byte, 8), miB))
	require.NoError(t, evict(path))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	pages, err := cached(f)
	require.NoError(t, err)
	require.Zero(t, pages)
	_, err = io.ReadAll(f)
	require.NoError(t, err)
	pages, err = cached(f)
	require.NoError(t, err)
	require.NotZero(t, pages)
}
