package main

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
)

// A shard is the part of a tensor that one rank holds: the tensor is cut along
// one dimension into parts of the same size, or nearly so.
type shard struct {
	tensor        string
	rank, of, dim int
}

// find returns the shard as a tensor. It reads no data.
func (s shard) find(f *safetensors.File) (safetensors.Tensor, error) {
	t, err := f.Tensor(s.tensor)
	if err != nil {
		return t, err
	}
	if t.DType() == safetensors.F64 {
		// This one rounds, so it must be asked for. All other floats become
		// float32 exactly, which Append does by itself.
		if t, err = t.Convert(safetensors.F32); err != nil {
			return t, err
		}
	}
	switch {
	case s.of < 1 || s.rank < 0 || s.rank >= s.of:
		return t, fmt.Errorf("there is no rank %d of %d", s.rank, s.of)
	case s.of == 1:
		return t, nil
	case s.dim < 0 || s.dim >= len(t.Shape()):
		return t, fmt.Errorf("%s has shape %v, and no dimension %d to cut", s.tensor, t.Shape(), s.dim)
	}
	ranges := make([]safetensors.Range, s.dim+1) // the zero Range is All()
	size := t.Shape()[s.dim]
	ranges[s.dim] = safetensors.Span(s.rank*size/s.of, (s.rank+1)*size/s.of)
	return t.Slice(ranges...)
}

// describe prints what t is, and its elements in short.
func describe(w io.Writer, s shard, t safetensors.Tensor, values []float32) {
	fmt.Fprintf(w, "%s: %v %v", s.tensor, t.DType(), t.Shape())
	if s.of > 1 {
		fmt.Fprintf(w, ", rank %d of %d along dimension %d", s.rank, s.of, s.dim)
	}
	fmt.Fprintln(w)
	if len(values) == 0 {
		fmt.Fprintln(w, "no elements")
		return
	}
	low, high, sum := values[0], values[0], 0.0
	for _, v := range values {
		low, high, sum = min(low, v), max(high, v), sum+float64(v)
	}
	fmt.Fprintf(w, "first %g\n", values[:min(5, len(values))])
	fmt.Fprintf(w, "min %g, max %g, mean %g\n", low, high, sum/float64(len(values)))
}

// A countingReaderAt counts the bytes that are read, by several goroutines at
// the same time.
type countingReaderAt struct {
	r     io.ReaderAt
	bytes atomic.Int64
}

func (c *countingReaderAt) ReadAt(b []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(b, off)
	c.bytes.Add(int64(n))
	return n, err
}
