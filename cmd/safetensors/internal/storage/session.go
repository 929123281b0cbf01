// Package storage opens the files that a source consists of, wherever they are: on this machine, on
// hubs, on web servers and in buckets.
package storage

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
)

// A Session opens the files of one run of the command.
type Session struct {
	// Context ends all reads of what was opened.
	Context context.Context

	read atomic.Int64
}

// BytesRead returns how many bytes were read from all files.
func (s *Session) BytesRead() int64 { return s.read.Load() }

// A readable file can be read at any place.
type readable interface {
	fs.File
	io.ReaderAt
}

// A metered file counts the bytes that are read, and fails when the context is
// cancelled: that is how a writer that takes no context ends. It costs nothing that
// can be measured, because reads are large.
type metered struct {
	readable
	s *Session
}

func (m metered) Read(p []byte) (int, error) {
	if m.s.Context.Err() != nil {
		return 0, context.Cause(m.s.Context)
	}
	n, err := m.readable.Read(p)
	m.s.read.Add(int64(n))
	return n, err
}

// WriteTo writes all of a file. One of this machine is copied by the system where that can.
func (m metered) WriteTo(w io.Writer) (n int64, err error) {
	local, ok := m.readable.(*os.File)
	if !ok {
		return io.Copy(w, struct{ io.Reader }{m})
	}
	const block = 64 << 20
	for err == nil && m.s.Context.Err() == nil {
		var copied int64
		copied, err = io.CopyN(w, local, block)
		m.s.read.Add(copied)
		n += copied
	}
	if err == io.EOF {
		return n, nil
	}
	return n, cmp.Or(context.Cause(m.s.Context), err)
}

func (m metered) ReadAt(p []byte, off int64) (int, error) {
	if m.s.Context.Err() != nil {
		return 0, context.Cause(m.s.Context)
	}
	n, err := m.readable.ReadAt(p, off)
	m.s.read.Add(int64(n))
	return n, err
}

// Meter returns a file that is metered, and a safetensors.RangeReader if f is one.
func (s *Session) Meter(f readable) readable {
	m := metered{f, s}
	if ranges, ok := f.(safetensors.RangeReader); ok {
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

// A Temp is a temporary file, which Close removes.
type Temp struct{ *os.File }

func (t *Temp) Close() error {
	err := t.File.Close()
	if removed := os.Remove(t.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// Spool copies a stream into a temporary file, and returns its size.
func (s *Session) Spool(r io.Reader) (*Temp, int64, error) {
	f, err := os.CreateTemp("", "safetensors-*.tmp")
	if err != nil {
		return nil, 0, err
	}
	os.Remove(f.Name()) // where the system can: a command that is killed leaves nothing
	temp := &Temp{f}
	size, err := localfile.Await(s.Context, func() (int64, error) { return io.Copy(f, r) })
	if err != nil {
		temp.Close()
		return nil, 0, err
	}
	return temp, size, nil
}
