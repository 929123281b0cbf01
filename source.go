package safetensors

import (
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
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// A RangeReader is an [io.ReaderAt] for sources where each read costs a round trip.
type RangeReader interface {
	io.ReaderAt

	// ReadRanges fills each slice with the bytes at its offset. No range is empty;
	// they are in increasing order, without overlaps. It may be called concurrently.
	ReadRanges(ranges iter.Seq2[int64, []byte]) error
}

// readers is the number of reads of an io.ReaderAt that an operation, or a file that is written,
// has in flight: enough to hide the latency of a disk, and some of the latency of a network.
const readers = 16

// rangeSize is the number of bytes in one read of a RangeReader, unless fewer are left. If as many
// of these reads as the constant readers run concurrently, they hide the latency of round trips,
// and take no more memory than mostInFlight.
const rangeSize = mem.BlockSize / 2

// A reads limits the number of reads that an operation has in flight, because it may read several
// blocks concurrently, and each block in several reads. The channel holds one element per read. If
// it is nil, there is no limit.
type reads chan struct{}

func (r reads) do(read func() error) error {
	if r != nil {
		r <- struct{}{}
		defer func() { <-r }()
	}
	return read()
}

// A source is the origin of tensors whose bytes are stored: in the data buffer of one file, in
// the data of one NewTensor or NewTensorAt, or in the result of a computed tensor. All tensors of
// a file share its source, so that closing the file closes it for all of them.
type source struct {
	mem    []byte      // the data buffer, if it is in memory or mapped; otherwise nil
	mapped *mapping    // the mapping that mem is a part of, nil if there is none
	r      io.ReaderAt // the data buffer is read from here unless it is in memory; for a mapping, the file
	base   int64       // offset of the data buffer in r
	ranges RangeReader // r, if it is a RangeReader
	native []byte      // on a big-endian host, the data of NewTensor in the byte order of the host; r returns it in little-endian order
	table  *table      // the header, for errors; nil unless the data buffer belongs to a file

	name    atomic.Pointer[string] // name of the file, for errors; nil if it has none
	inUse   sync.RWMutex           // read-locked by each operation in progress, locked forever by close
	closing sync.Once
	release func() error // unmaps or closes the file; nil if there is nothing to do
}

// newReaderSource returns the source of a data buffer that starts at offset base in r. If r reports the name of
// a file, the source has this name.
func newReaderSource(r io.ReaderAt, base int64) *source {
	s := &source{r: r, base: base}
	s.ranges, _ = r.(RangeReader)
	if name := osfile.NameOf(r); name != "" {
		s.setName(name)
	}
	return s
}

func (s *source) notInMemory() string { return "its data is not in memory" }

// memory returns the data if it is in memory, otherwise nil. If the byte order of its numbers is
// not that of a file, unit is the size of a number in bytes, otherwise 0.
func (s *source) memory() (data []byte, unit int) {
	if s.native != nil {
		return s.native, s.r.(mem.Swapped).Size
	}
	return s.mem, 0
}

// acquire keeps the source open until done is called. It never waits: after close it fails with
// fs.ErrClosed, so that an operation inside another one cannot deadlock with a close that waits for
// the outer one.
func (s *source) acquire() error {
	if !s.inUse.TryRLock() {
		return fs.ErrClosed
	}
	return nil
}

func (s *source) done() { s.inUse.RUnlock() }

// setName sets the name of the file, unless it has one.
func (s *source) setName(name string) { s.name.CompareAndSwap(nil, &name) }

// fileName returns the name of the file, "" if it has none.
func (s *source) fileName() string {
	if name := s.name.Load(); name != nil {
		return *name
	}
	return ""
}

// locate adds the names of the file and the tensor to an error of reading the data buffer at offset
// off, which is -1 if unknown. It returns nil for nil.
func (s *source) locate(off int64, err error) error {
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

// checkOpen returns fs.ErrClosed after close, and nil before.
func (s *source) checkOpen() error {
	if err := s.acquire(); err != nil {
		return err
	}
	s.done()
	return nil
}

// close waits until nothing uses the source and marks it closed, then releases it; in this order,
// because the release func of FileOf may call Close.
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

// inMemory reports whether the data buffer is in memory that cannot fault, unlike a mapping.
func (s *source) inMemory() bool { return s.mem != nil && s.mapped == nil }

// read fills dst with the bytes of the data buffer from offset off on. The caller must have
// acquired the source.
func (s *source) read(dst []byte, off int64, limit reads) error {
	if s.inMemory() {
		copy(dst, s.mem[off:][:len(dst)])
		return nil
	}
	return limit.do(func() error { return s.readAt(dst, off) })
}

// lend calls write with the n bytes of the data buffer, which is in memory, from offset off on.
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
	// If a system call in write touches a lost page, the call fails as if write were at fault.
	if lost := s.mapped.guard(func() error { mem.Touch(b); return nil }); lost != nil {
		return s.locate(off, lost)
	}
	return err
}

// An exactReader fills the whole of dst, unless it returns an error.
type exactReader interface {
	readAt(dst []byte, off int64) error
}

func (s *source) readAt(dst []byte, off int64) error {
	switch r := s.r.(type) {
	case exactReader: // a stream, whose errors already contain the range of bytes
		return r.readAt(dst, off)
	case *os.File:
		if len(dst) > mem.BufferSize { // smaller reads are sequential, so that the kernel reads ahead by itself
			osfile.ReadAhead(r, s.base+off, int64(len(dst)))
		}
	}
	if err := readFull(s.r, dst, s.base+off); err != nil {
		where := "the file"
		if s.table == nil { // the reader of NewTensorAt may unpack a part of a file
			where = "the data"
		}
		return fmt.Errorf("reading %s at byte %d of %s: %w", shapetext.Count(len(dst), "byte"), s.base+off, where, bare(err))
	}
	return nil
}

// readLine gathers a line from a reader, with several reads in flight. It reads a dense line in
// blocks and picks the runs out of them; any other line it reads run by run.
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

// gather fills dst with the bytes of g from position pos on. g starts at offset off of the data
// buffer, which is in memory.
func (s *source) gather(dst []byte, off int64, g *gather, pos int64) error {
	if s.mapped == nil {
		stride.Gather(dst, s.mem[off:], g.run, g.loops, pos) // gathers transposed elements in blocks
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

// populate faults in the pages of a dense line, unless the last page is cached; then it assumes
// that all are.
func (s *source) populate(l line) {
	if l.span() >= mem.PopulateFrom && l.dense() && !osfile.Cached(s.mapped.file, s.base+l.off+l.span()-1) {
		mem.Populate(s.mem[l.off:][:l.span()])
	}
}

// errFault is the error of a memory fault in a mapping.
var errFault = errors.New("memory fault in the mapped file: it was truncated while open, or its disk failed")

// A mapping is a file that is mapped into memory. Touching it may fault: a page that is not
// cached makes the goroutine wait, and a page that is lost ends the program, except in guard.
type mapping struct {
	file  *os.File
	bytes []byte
}

// guard calls f, which copies from the mapping. It turns a fault into an error. It also returns an
// error if the file was truncated, because the rest of its last page reads as zeros, without a
// fault.
func (m *mapping) guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover() // a fault is a runtime.Error that has the address
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
