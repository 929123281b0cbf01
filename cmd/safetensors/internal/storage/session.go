// Package storage opens the files that a source consists of, wherever they are: on this machine, on
// hubs, on web servers and in buckets.
package storage

import (
	"context"
	"io"
	"iter"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
)

// A Session opens the files of one run of the command.
type Session struct {
	// Context ends all reads of what was opened.
	Context context.Context

	read atomic.Int64
}

// BytesRead returns how many bytes were read from all files.
func (s *Session) BytesRead() int64 { return s.read.Load() }

// A metered reader counts the bytes that are read, and fails when the context is
// cancelled: that is how a writer that takes no context ends. It costs nothing that
// can be measured, because reads are large.
type metered struct {
	io.ReaderAt
	s *Session
}

func (m metered) ReadAt(p []byte, off int64) (int, error) {
	if m.s.Context.Err() != nil {
		return 0, context.Cause(m.s.Context)
	}
	n, err := m.ReaderAt.ReadAt(p, off)
	m.s.read.Add(int64(n))
	return n, err
}

// Meter returns a reader that is metered, and a safetensors.RangeReader if r is one.
func (s *Session) Meter(r io.ReaderAt) io.ReaderAt {
	m := metered{r, s}
	if ranges, ok := r.(safetensors.RangeReader); ok {
		return meteredRanges{m, ranges}
	}
	return m
}

type meteredRanges struct {
	metered
	ranges safetensors.RangeReader
}

func (m meteredRanges) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	if m.s.Context.Err() != nil {
		return context.Cause(m.s.Context)
	}
	n := int64(0)
	err := m.ranges.ReadRanges(func(yield func(int64, []byte) bool) {
		for off, dst := range ranges {
			n += int64(len(dst))
			if !yield(off, dst) {
				return
			}
		}
	})
	m.s.read.Add(n)
	return err
}
