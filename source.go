package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// A RangeReader is an [io.ReaderAt] for sources where each read costs a round trip.
type RangeReader interface {
	io.ReaderAt

	// ReadRanges fills each slice with the bytes at its offset. No range is empty;
	// they are in increasing order, without overlaps. It may be called concurrently.
	ReadRanges(ranges iter.Seq2[int64, []byte]) error
}

// readers is how many reads of an io.ReaderAt an operation, or a file that is written,
// has in flight: enough to hide the latency of a disk, and some of that of a network.
const readers = 16

// reads limits them where blocks are read concurrently, and each in several reads: it
// holds an element for each. A nil one is no limit.
type reads chan struct{}

func (r reads) do(read func() error) error {
	if r != nil {
		r <- struct{}{}
		defer func() { <-r }()
	}
	return read()
}

// A source is where the bytes of tensors are: the data buffer of one file, or
// the data of one NewTensor or NewTensorAt, or the result of a computed tensor, or the
// elements of another tensor. All tensors of a file share its source, and with it the
// knowledge whether the file is still open.
type source struct {
	mem    []byte      // the data buffer, if it is in memory or mapped
	mapped *mapping    // which mem is a part of, nil if there is none
	r      io.ReaderAt // the data buffer is read from here unless it is in memory; of a mapping, its file
	base   int64       // offset of the data buffer in r
	ranges RangeReader // r, if it is one
	native []byte      // on a big-endian host, numbers in memory in its order, which r swaps
	table  *table      // what the data buffer holds, for errors; nil unless it is that of a file

	computed *computed // makes the data when it is read, in place of all above
	tensor   *Tensor   // whose elements, in row-major order, are the data, in place of all above

	name    atomic.Pointer[string] // of the file, for errors; nil if it has none
	inUse   sync.RWMutex           // read-locked by each operation in progress, locked for ever by close
	closing sync.Once
	release func() error // unmaps or closes; nil if there is nothing to do
}

// newReaderSource returns the source of a data buffer that starts at offset base
// of r.
func newReaderSource(r io.ReaderAt, base int64) *source {
	s := &source{r: r, base: base}
	s.ranges, _ = r.(RangeReader)
	return s
}

// newMemorySource returns the source of elements of type T in memory.
func newMemorySource[T Element](elements []T) *source {
	b := mem.BytesOf(elements)
	if unit := mem.SwappedUnit[T](); unit > 0 {
		return &source{r: mem.Swapped{R: bytes.NewReader(b), Size: unit}, native: b}
	}
	return &source{mem: b}
}

// memory returns the data as it is in memory, nil if it is not there, and the bytes of its
// numbers if these are in another order than in a file, else 0.
func (s *source) memory() (data []byte, unit int) {
	if s.native != nil {
		return s.native, s.r.(mem.Swapped).Size
	}
	return s.mem, 0
}

// acquire keeps the source open until done. It never waits: after close it fails
// with fs.ErrClosed, so that an operation inside another one cannot deadlock with
// a close that waits for the outer one.
func (s *source) acquire() error {
	if !s.inUse.TryRLock() {
		return fs.ErrClosed
	}
	return nil
}

func (s *source) done() { s.inUse.RUnlock() }

// setName names the file, unless it has a name.
func (s *source) setName(name string) { s.name.CompareAndSwap(nil, &name) }

// fileName returns the name of the file, "" if it has none.
func (s *source) fileName() string {
	if name := s.name.Load(); name != nil {
		return *name
	}
	return ""
}

// failed returns an error of reading the data buffer at offset off, -1 if unknown: it
// names the file and the tensor.
func (s *source) failed(off int64, err error) error {
	if err == nil {
		return nil
	}
	e := &readError{file: s.fileName(), err: err}
	if s.table != nil {
		if i := s.table.at(off); i >= 0 {
			e.tensor = "tensor " + quote(s.table.name(i))
		}
	}
	if e.tensor == "" && e.file == "" {
		return err
	}
	return e
}

// open returns fs.ErrClosed after close.
func (s *source) open() error {
	if err := s.acquire(); err != nil {
		return err
	}
	s.done()
	return nil
}

// close waits until nothing uses the source, then releases it, once that is noted: the
// release of FileOf may be a func that closes the File.
func (s *source) close() error {
	var release func() error
	s.closing.Do(func() {
		s.inUse.Lock()
		release, s.release = s.release, nil
	})
	if release == nil {
		return nil
	}
	return release()
}

// inMemory reports whether the data buffer is in memory that cannot fault.
func (s *source) inMemory() bool { return s.mem != nil && s.mapped == nil }

// read fills dst with the bytes from offset off of the data buffer on. The
// caller has acquired the source.
func (s *source) read(dst []byte, off int64, limit reads) error {
	if s.inMemory() {
		copy(dst, s.mem[off:][:len(dst)])
		return nil
	}
	return limit.do(func() error { return s.readAt(dst, off) })
}

// lend calls write with the n bytes of memory from offset off on.
func (s *source) lend(off, n int64, write func([]byte) error) error {
	b := s.mem[off:][:n:n]
	if s.mapped == nil {
		return write(b)
	}
	mem.Populate(b)
	defer mem.Release(b) // so that a large file does not stay resident
	err := s.mapped.guard(func() error { return write(b) })
	if err == nil {
		return nil
	}
	// A system call that meets a lost page fails, as if write were at fault.
	if lost := s.mapped.guard(func() error { mem.Touch(b); return nil }); lost != nil {
		return s.failed(off, lost)
	}
	return err
}

func (s *source) readAt(dst []byte, off int64) error {
	switch r := s.r.(type) {
	case streamReader:
		return r.readAt(dst, off)
	case *os.File:
		if len(dst) > mem.BufferSize { // the kernel follows smaller reads, which come in order
			osfile.ReadAhead(r, s.base+off, int64(len(dst)))
		}
	}
	if err := readFull(s.r, dst, s.base+off); err != nil {
		return fmt.Errorf("reading %d bytes at byte %d of the file: %w", len(dst), s.base+off, err)
	}
	return nil
}

// readLine gathers a line from a reader, with several reads in flight: a dense
// line in blocks, out of which the runs are picked, any other one run by run.
func (s *source) readLine(dst []byte, l line, limit reads) error {
	perBlock := mem.BufferSize / l.stride
	if l.count == 1 || !l.dense() || perBlock < 2 {
		return parallel.Do(readers, l.count, func(i int64) error {
			return limit.do(func() error { return s.readAt(dst[i*l.run:][:l.run], l.off+i*l.stride) })
		})
	}
	return parallel.Blocks(readers, l.count, perBlock, func(first, count int64) error {
		return limit.do(func() error {
			part := line{l.off + first*l.stride, l.run, l.stride, count}
			b := mem.NewBlock(part.span())
			defer b.Free()
			if err := s.readAt(b.Bytes, part.off); err != nil {
				return err
			}
			part.copyFrom(dst[first*l.run:], b.Bytes, part.off)
			return nil
		})
	})
}

// gather fills dst with the bytes of g from position pos on, which is in memory from
// offset off on.
func (s *source) gather(dst []byte, off int64, g *gather, pos int64) error {
	if s.mapped == nil {
		stride.Gather(dst, s.mem[off:], g.run, g.loops, pos) // transposed elements in blocks
		return nil
	}
	return s.mapped.guard(func() error {
		for l := range g.lines(off, pos, int64(len(dst))) {
			s.populate(l)
			l.copyFrom(dst, s.mem, 0)
			dst = dst[l.size():]
		}
		return nil
	})
}

// populate faults in the pages of a dense line, unless the last one is cached: then all
// are taken to be.
func (s *source) populate(l line) {
	if l.span() >= mem.PopulateFrom && l.dense() && !osfile.Cached(s.mapped.file, s.base+l.off+l.span()-1) {
		mem.Populate(s.mem[l.off:][:l.span()])
	}
}

// errFault is the error of a memory fault in a mapping.
var errFault = errors.New("memory fault in the mapped file: it was truncated while open, or its disk failed")

// A mapping is a file in memory. Touching it may fault: a cold page makes the
// goroutine wait, a lost one ends the program, except in guard.
type mapping struct {
	file  *os.File
	bytes []byte
}

// guard calls f, which copies from the mapping. A fault on the way is an error, and
// so is a file that has become shorter: the rest of its last page reads as zeros.
func (m *mapping) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover() // of a fault, a runtime.Error with the address
		if fault, ok := p.(interface{ Addr() uintptr }); ok && mem.Contains(m.bytes, fault.Addr()) {
			err = errFault
		} else if p != nil {
			panic(p)
		}
	}()
	if err := f(); err != nil {
		return err
	}
	size, err := m.file.Seek(0, io.SeekEnd)
	if err == nil && size < int64(len(m.bytes)) {
		err = fmt.Errorf("the file was truncated while open, from %d bytes to %d: %w", len(m.bytes), size, io.ErrUnexpectedEOF)
	}
	return err
}

// readFull reads exactly len(b) bytes at off. If the data ends before, the error
// is io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case n < 0 || n > len(b):
		return fmt.Errorf("%T read %d of %d bytes", r, n, len(b))
	case err == io.EOF || err == nil:
		return io.ErrUnexpectedEOF
	}
	return err
}
