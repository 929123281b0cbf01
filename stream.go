package safetensors

import (
	"fmt"
	"hash"
	"io"
	"os"
	"sync"
)

// A stream gives the bytes of a tensor as they are to be seen: gathered,
// converted, in row-major order and little-endian. It is read at any multiple
// of eight elements, by several goroutines at a time, while its source is
// acquired.
type stream struct {
	src   *source
	off   int64   // contiguous: the first byte in the data buffer
	from  *gather // otherwise: what to gather there
	steps []DType // the dtype in the source, then each one to convert to
	size  int64   // bytes that come out
}

// stream checks t and returns its bytes.
func (t Tensor) stream() (*stream, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	size, _ := checkShape(t.DType, t.Shape)
	s := &stream{src: t.src, off: t.off, steps: t.steps, size: size}
	if t.strided != nil {
		g, _ := newGather(t.stored(), t.strided) // part has checked it
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

// inMemory reports whether the source holds the bytes as they are to be seen,
// conversion aside.
func (s *stream) inMemory() bool {
	return s.src != nil && s.src.mem != nil && s.src.unit == 0 && s.from == nil
}

// readAt fills dst with the bytes from position pos on.
func (s *stream) readAt(dst []byte, pos int64) error {
	if len(dst) == 0 {
		return nil
	}
	if len(s.steps) < 2 {
		return s.fetch(dst, pos)
	}
	from, to := s.steps[0], s.steps[len(s.steps)-1]
	n := int64(len(dst)) * 8 / int64(to.Bits())
	first := pos * 8 / int64(to.Bits())
	if len(s.steps) == 2 && s.inMemory() {
		return s.src.touch(s.off+first*int64(from.Bits())/8, n*int64(from.Bits())/8, func(mem []byte) error {
			convert(dst, to, mem, from, s.size >= streamBytes)
			return nil
		})
	}
	return s.convertChunks(dst, first, n)
}

// chunkElements is how many elements are converted at a time where they cannot
// be converted straight from memory: their bytes stay in the cache, and reads
// of them are large enough for a disk.
const chunkElements = 64 << 10

// chunks holds the memory for such conversions, one chunk for what a step reads
// and one for what it writes.
var chunks = sync.Pool{New: func() any { return new([2][8 * chunkElements]byte) }}

// convertChunks fills dst with n elements from number first on.
func (s *stream) convertChunks(dst []byte, first, n int64) error {
	chunk := chunks.Get().(*[2][8 * chunkElements]byte)
	defer chunks.Put(chunk)
	last := len(s.steps) - 1
	for n > 0 {
		m := min(n, chunkElements)
		in := chunk[0][:m*int64(s.steps[0].Bits())/8]
		if err := s.fetch(in, first*int64(s.steps[0].Bits())/8); err != nil {
			return err
		}
		for i, to := range s.steps[1:] {
			out := chunk[(i+1)%2][:m*int64(to.Bits())/8]
			if i+1 == last {
				out = dst[:len(out)]
			}
			convert(out, to, in, s.steps[i], false)
			in = out
		}
		dst = dst[len(in):]
		first += m
		n -= m
	}
	return nil
}

// fetch fills dst with bytes of the tensor before any conversion, little-endian.
func (s *stream) fetch(dst []byte, pos int64) (err error) {
	switch {
	case s.from == nil:
		err = s.src.read(dst, s.off+pos)
	case s.src.mem != nil:
		err = s.src.gather(dst, s.from, pos)
	default:
		err = s.from.lines(pos, int64(len(dst)), func(l line) error {
			part := dst[:l.size()]
			dst = dst[l.size():]
			return l.readFrom(part, s.src)
		})
	}
	if err == nil && s.src.unit > 1 {
		reverseUnits(dst, s.src.unit)
	}
	return err
}

// readAll fills dst, of s.size bytes, with several goroutines where that pays.
func (s *stream) readAll(dst []byte) error {
	return parallelBlocks(s.size, func(pos, n int64) error {
		return s.readAt(dst[pos:][:n], pos)
	})
}

// writeBuffer is how much is gathered or converted before it is written.
const writeBuffer = 1 << 20

var writeBuffers = sync.Pool{New: func() any { return new([writeBuffer]byte) }}

// writeTo writes all bytes to w.
func (s *stream) writeTo(w io.Writer) (written int64, err error) {
	lend := s.mayLend(w)
	for written < s.size && err == nil {
		err = s.pass(written, min(blockSize, s.size-written), lend, func(b []byte) error {
			n, err := writeFull(w, b)
			written += int64(n)
			return err
		})
	}
	return written, err
}

// lendable reports whether the memory of the source holds the bytes as they come
// out.
func (s *stream) lendable() bool { return s.inMemory() && len(s.steps) < 2 }

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

// pass calls write with the n bytes from position pos on: with the memory of the
// source itself if that may be lent, otherwise with copies of up to writeBuffer
// bytes. write must not keep them.
func (s *stream) pass(pos, n int64, lend bool, write func([]byte) error) error {
	if lend {
		return s.src.touch(s.off+pos, n, write)
	}
	buf := writeBuffers.Get().(*[writeBuffer]byte)
	defer writeBuffers.Put(buf)
	for end := pos + n; pos < end; {
		b := buf[:min(writeBuffer, end-pos)]
		if err := s.readAt(b, pos); err != nil {
			return err
		}
		if err := write(b); err != nil {
			return err
		}
		pos += int64(len(b))
	}
	return nil
}

// writeFull is w.Write, and an error where that breaks its contract.
func writeFull(w io.Writer, b []byte) (int, error) {
	n, err := w.Write(b)
	if n < 0 || n > len(b) {
		return 0, fmt.Errorf("safetensors: %T wrote %d of %d bytes", w, n, len(b))
	}
	if n < len(b) && err == nil {
		err = io.ErrShortWrite
	}
	return n, err
}
