package safetensors

import (
	"fmt"
	"hash"
	"io"
	"os"
	"sync"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A stream produces the bytes of a tensor: gathered, converted, in row-major
// order and little-endian. Several goroutines may read it while its source is
// acquired, each from a position that is a multiple of eight elements.
type stream struct {
	src    *source
	off    int64   // contiguous: the first byte in the data buffer
	from   *gather // otherwise: what to gather there
	dtypes []DType // the dtype in the source, then each dtype to convert to; nil if there is no conversion
	size   int64   // bytes that come out
}

// stream returns the bytes of t.
func (t Tensor) stream() (*stream, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	s := &stream{src: t.src, off: t.off, dtypes: t.dtypes, size: t.Size()}
	if t.strided != nil {
		g, _ := newGather(t.stored(), t.strided) // selecting has checked it
		g.first += t.off
		s.from = &g
	}
	return s, nil
}

// acquire keeps the source of s open until done.
func (s *stream) acquire() error {
	if s.src == nil { // a tensor without elements may have no source
		return nil
	}
	return s.src.acquire()
}

func (s *stream) done() {
	if s.src != nil {
		s.src.done()
	}
}

// inMemory reports whether the source holds the bytes that come out, before any
// conversion.
func (s *stream) inMemory() bool {
	return s.src != nil && s.src.mem != nil && s.src.unit == 0 && s.from == nil
}

// readAt fills dst with the bytes from position pos on.
func (s *stream) readAt(dst []byte, pos int64) error {
	if len(dst) == 0 {
		return nil
	}
	if s.dtypes == nil {
		return s.fetch(dst, pos)
	}
	from, to := s.dtypes[0], s.dtypes[len(s.dtypes)-1]
	n := int64(len(dst)) * 8 / int64(to.Bits())
	first := pos * 8 / int64(to.Bits())
	if len(s.dtypes) == 2 && s.inMemory() {
		return s.src.touch(s.off+first*int64(from.Bits())/8, n*int64(from.Bits())/8, func(b []byte) error {
			float.Convert(dst, to.float(), b, from.float(), s.size >= float.NonTemporalFrom)
			return nil
		})
	}
	return s.convertChunks(dst, first, n)
}

// chunkElements is how many elements are converted per step where they cannot be
// converted straight from memory: their bytes stay in the cache. It is a multiple
// of 8, so that chunks of sub-byte dtypes start and end on byte boundaries.
const chunkElements = 64 << 10

// A chunk is memory for such conversions: the input of a step and its output,
// with room for the widest dtype.
type chunk [2][8 * chunkElements]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// convertChunks fills dst with n elements from number first on. In memory it
// gathers one chunk per conversion; from a reader it reads more in one call.
func (s *stream) convertChunks(dst []byte, first, n int64) error {
	c := chunks.Get().(*chunk)
	defer chunks.Put(c)
	in := c[0][:]
	if s.src.mem == nil {
		b := mem.NewBlock(mem.BlockSize)
		defer b.Free()
		in = b.Bytes
	}
	bits, toBits := int64(s.dtypes[0].Bits()), int64(s.dtypes[len(s.dtypes)-1].Bits())
	for most := int64(len(in)) / 64 * 8; n > 0; n -= min(n, most) {
		m := min(n, most)
		if err := s.fetch(in[:m*bits/8], first*bits/8); err != nil {
			return err
		}
		for k := int64(0); k < m; k += chunkElements {
			end := min(k+chunkElements, m)
			s.convertChunk(dst[k*toBits/8:end*toBits/8], in[k*bits/8:end*bits/8], c)
		}
		dst = dst[m*toBits/8:]
		first += m
	}
	return nil
}

// convertChunk takes elements through all dtypes. in may be the first half of c.
func (s *stream) convertChunk(dst, in []byte, c *chunk) {
	n := len(in) * 8 / s.dtypes[0].Bits()
	last := len(s.dtypes) - 1
	for i, to := range s.dtypes[1:] {
		out := dst
		if i+1 < last {
			out = c[(i+1)%2][:n*to.Bits()/8]
		}
		float.Convert(out, to.float(), in, s.dtypes[i].float(), false)
		in = out
	}
}

// fetch fills dst with bytes of the tensor before any conversion, little-endian.
func (s *stream) fetch(dst []byte, pos int64) (err error) {
	switch {
	case s.from == nil:
		err = s.src.read(dst, s.off+pos)
	case s.src.mem != nil:
		err = s.src.gather(dst, s.from, pos)
	case s.src.ranges != nil:
		err = s.src.ranges.ReadRanges(s.from.runs(dst, pos, s.src.base))
	default:
		err = s.from.lines(pos, int64(len(dst)), func(l line) error {
			part := dst[:l.size()]
			dst = dst[l.size():]
			return s.src.readLine(part, l)
		})
	}
	if err == nil && s.src.unit > 1 {
		mem.Swap(dst, s.src.unit)
	}
	return err
}

// readAll fills dst, of s.size bytes, with several goroutines where that pays.
func (s *stream) readAll(dst []byte) error {
	return parallel.Blocks(s.workers(), s.size, mem.BlockSize, func(pos, n int64) error {
		return s.readAt(dst[pos:][:n], pos)
	})
}

// workers returns how many goroutines may read concurrently.
func (s *stream) workers() int {
	switch {
	case s.src == nil || s.src.mem != nil:
		return parallel.CopyWorkers()
	case s.from != nil && s.src.ranges == nil:
		return 1 // readLine reads a line concurrently
	}
	return readers
}

// writeTo writes all bytes to w.
func (s *stream) writeTo(w io.Writer) (written int64, err error) {
	write := func(b []byte) error {
		n, err := writeFull(w, b)
		written += int64(n)
		return err
	}
	if s.mayLend(w) {
		for written < s.size && err == nil {
			err = s.lend(written, min(mem.BlockSize, s.size-written), write)
		}
		return written, err
	}
	err = parallel.InOrder(parallel.BlockCount(s.size, mem.BlockSize), func(i int64) (*mem.Block, error) {
		pos := i * mem.BlockSize
		return mem.Filled(min(mem.BlockSize, s.size-pos), func(b []byte) error { return s.readAt(b, pos) })
	}, func(_ int64, b *mem.Block) error {
		defer b.Free()
		return write(b.Bytes)
	}, (*mem.Block).Free)
	return written, err
}

// lendable reports whether the memory of the source holds the bytes that come
// out.
func (s *stream) lendable() bool { return s.inMemory() && s.dtypes == nil }

// mayLend reports whether w may be given the memory of the source itself. If
// that is a mapping, w must touch it on this goroutine or in a system call, so
// that a fault becomes an error; io.PipeWriter, for one, does not.
func (s *stream) mayLend(w io.Writer) bool {
	if !s.lendable() {
		return false
	}
	switch w.(type) {
	case *os.File, hash.Hash:
		return true
	}
	return !s.src.mapped
}

// lend calls write with the n bytes of the source itself from position pos on.
func (s *stream) lend(pos, n int64, write func([]byte) error) error {
	return s.src.touch(s.off+pos, n, write)
}

// writeFull is w.Write, and an error where that breaks its contract.
func writeFull(w io.Writer, b []byte) (int, error) {
	n, err := w.Write(b)
	if n < 0 || n > len(b) {
		return 0, fmt.Errorf("%T wrote %d of %d bytes", w, n, len(b))
	}
	if n < len(b) && err == nil {
		err = io.ErrShortWrite
	}
	return n, err
}
