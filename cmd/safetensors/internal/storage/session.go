// Package storage opens the files of a source, wherever they are: on this machine, on hubs, on web
// servers and in buckets.
package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
)

// A Session opens the files of one run of the command.
type Session struct {
	// Once Context is done, all reads of the opened files fail.
	Context context.Context

	// Through, unless nil, replaces each file system that the session opens. Tests use it to inject
	// faults.
	Through func(fs.FS) fs.FS

	// Downloading, unless nil, is called once per web server with a note that files are downloaded as a whole.
	Downloading func(note string)

	read atomic.Int64

	mu           sync.Mutex
	repositories map[string]fs.FS // repositories of hubs by name and revision, guarded by mu
}

// BytesRead returns the number of bytes that were read from all files.
func (s *Session) BytesRead() int64 { return s.read.Load() }

// A readable is a file that can be read by offset.
type readable interface {
	fs.File
	io.ReaderAt
}

// A metered is a file that counts the bytes that are read from it. It has a name for errors. Its reads fail once the context is done:
// that also stops copies by code that does not know the context. The cost of counting is too small
// to measure, because reads are large.
type metered struct {
	readable
	s    *Session
	name string
}

// Name returns the name of the file for errors.
func (m metered) Name() string { return m.name }

func (m metered) Read(p []byte) (int, error) {
	if m.s.Context.Err() != nil {
		return 0, context.Cause(m.s.Context)
	}
	n, err := m.readable.Read(p)
	m.s.read.Add(int64(n))
	return n, err
}

// WriteTo writes the rest of the file to w. If the file is on this machine, the operating system
// copies the bytes where it can.
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

// Meter returns f as a metered file, which is a safetensors.RangeReader if f is one. name is its name in errors, as term.Name
// returns it.
func (s *Session) Meter(f readable, name string) readable {
	m := metered{f, s, name}
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

// A Temp is a temporary file. Close removes it.
type Temp struct{ *os.File }

func (t *Temp) Close() error {
	err := t.File.Close()
	if removed := os.Remove(t.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// Spool copies a stream to a temporary file, and returns the file and its size. claimed is the size
// that the stream is expected to have, or -1. Spool writes at most as many bytes as the file system
// of the temporary folder has free, minus a sixteenth. It writes nothing if claimed is above that.
func (s *Session) Spool(r io.Reader, claimed int64) (*Temp, int64, error) {
	f, err := os.CreateTemp("", "safetensors-*.tmp")
	if err != nil {
		return nil, 0, err
	}
	os.Remove(f.Name()) // on systems that allow it, so that a command that is killed leaves nothing
	temp := &Temp{f}
	limit := int64(math.MaxInt64)
	if free, known := freeSpace(os.TempDir()); known {
		limit = int64(min(free-free/16, math.MaxInt64-1))
	}
	size := claimed
	if claimed <= limit {
		size, err = localfile.Await(s.Context, func() (int64, error) { return copyAtMost(f, r, limit) })
	}
	if err == nil && size > limit {
		err = fmt.Errorf("it has more than the %d bytes that a temporary file in %s may take: set TMPDIR to a folder with more room", limit, os.TempDir())
	}
	if err != nil {
		temp.Close()
		return nil, 0, err
	}
	return temp, size, nil
}

// copyAtMost copies a stream, but at most one byte beyond a limit.
func copyAtMost(w io.Writer, r io.Reader, limit int64) (int64, error) {
	if limit == math.MaxInt64 {
		return io.Copy(w, r)
	}
	return io.Copy(w, io.LimitReader(r, limit+1))
}
