package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"sync"
)

// A source is where the bytes of tensors are: the data buffer of one file, or
// the slice of one NewTensor. All tensors of a file share its source, and with
// it the knowledge whether the file is still open.
type source struct {
	mem    []byte      // the data buffer, if it is in memory
	mapped bool        // mem is a mapping: touching it may fault
	unit   int         // mem holds units of so many bytes in big-endian order (NewTensor); 0: as in a file
	r      io.ReaderAt // else the data buffer is read from here,
	base   int64       // where it begins at this offset
	ranges RangeReader // r, if it is one

	mu      sync.Mutex
	idle    sync.Cond // users == 0, once closed
	users   int       // operations under way
	closed  bool
	release func() error // unmaps or closes; nil if there is nothing to do
}

// acquire keeps the source open until done. It never waits: once close has been
// called it fails with fs.ErrClosed, so that an operation that runs within
// another one cannot deadlock with a close that waits for the outer one.
func (s *source) acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("safetensors: %w", fs.ErrClosed)
	}
	s.users++
	return nil
}

func (s *source) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 && s.closed {
		s.idle.Broadcast()
	}
}

// open returns fs.ErrClosed after close.
func (s *source) open() error {
	if err := s.acquire(); err != nil {
		return err
	}
	s.done()
	return nil
}

// close waits until nothing uses the source, then releases what is behind it.
func (s *source) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.idle.L = &s.mu
	for s.users > 0 {
		s.idle.Wait()
	}
	release := s.release
	s.release = nil
	if release == nil {
		return nil
	}
	return release()
}

// read fills dst with the bytes from offset off of the data buffer on. The
// caller has acquired the source.
func (s *source) read(dst []byte, off int64) error {
	if s.mem == nil {
		return s.readAt(dst, off)
	}
	return s.touch(off, int64(len(dst)), func(mem []byte) error { copy(dst, mem); return nil })
}

func (s *source) readAt(dst []byte, off int64) error {
	if err := readFull(s.r, dst, s.base+off); err != nil {
		return fmt.Errorf("safetensors: reading %d bytes at byte %d of the file: %w", len(dst), s.base+off, err)
	}
	return nil
}

// gather fills dst with what g gathers in memory from position pos on.
func (s *source) gather(dst []byte, g *gather, pos int64) error {
	return s.guard(func() error {
		return g.lines(pos, int64(len(dst)), func(l line) error {
			if s.mapped && l.dense() {
				populate(s.mem[l.off:][:l.span()])
			}
			l.copyFrom(dst, s.mem, 0)
			dst = dst[l.size():]
			return nil
		})
	})
}

// touch calls f with the size bytes of memory from off on. In a mapping they
// are brought in first; a fault on the way, because the file has been truncated
// or its disk fails, becomes an error. f must not keep the memory.
func (s *source) touch(off, size int64, f func(mem []byte) error) error {
	mem := s.mem[off:][:size:size]
	if s.mapped {
		populate(mem)
	}
	return s.guard(func() error { return f(mem) })
}

// errFault is the error of a memory fault in a mapping.
var errFault = errors.New("memory fault in the mapped file: it was truncated while open, or its disk failed")

// guard calls f, which touches the mapping, and turns a fault in it into an
// error. A cold page makes f wait; a lost one makes it fail.
func (s *source) guard(f func() error) (err error) {
	if !s.mapped {
		return f()
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // the runtime.Error of a fault
			if !within(p.Addr(), s.mem) {
				panic(p)
			}
			err = fmt.Errorf("safetensors: %w", errFault)
		default:
			panic(p)
		}
	}()
	return f()
}

// readFull reads exactly len(b) bytes at off. Data that ends before is
// io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == io.EOF || err == nil {
		err = io.ErrUnexpectedEOF
	}
	return err
}
