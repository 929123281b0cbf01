package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A stream produces the bytes of a tensor for one operation: gathered, converted,
// joined or computed, in row-major order and little-endian. Several goroutines may
// read it. There are five kinds: storedStream, transposedStream, joinedStream,
// computedStream and throughStream.
type stream interface {
	// release lets go of the sources, which are held from the beginning: from then on each
	// read holds its own.
	release()

	// readAt fills dst with the bytes from position pos on.
	readAt(dst []byte, pos int64) error

	// lend calls write with the n bytes from position pos on where memory holds them
	// already, in one or several calls. It reports whether it did: else they have to
	// be read.
	lend(pos, n int64, write func([]byte) error) (lent bool, err error)

	// workers returns how many goroutines may usefully read concurrently.
	workers() int

	// block returns how many bytes are best read in one call into memory of their
	// own: mem.BlockSize where each call may cost a round trip, else mem.BufferSize,
	// which stays in the cache until it is written.
	block() int64
}

// streams are those of a file, or of the pieces of a joined tensor.
type streams []stream

func (all streams) release() {
	for _, s := range all {
		s.release()
	}
}

// workers returns how many goroutines may usefully read: more if some have to be waited for.
func (all streams) workers() int {
	n := parallel.CopyWorkers()
	for _, s := range all {
		n = max(n, s.workers())
	}
	return n
}

// block returns the largest block.
func (all streams) block() int64 {
	n := int64(mem.BufferSize)
	for _, s := range all {
		n = max(n, s.block())
	}
	return n
}

// stream returns the bytes of t for an operation with these computations. The caller calls
// release.
func (t Tensor) stream(all *computations) (stream, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	switch {
	case t.concat != nil:
		return t.concat.stream(all)
	case t.src.computed != nil:
		return newComputedStream(t, all), nil
	case t.src.tensor != nil && t.size > 0:
		return newThroughStream(t, all)
	}
	s := newStoredStream(t)
	if err := s.use(); err != nil {
		return nil, err
	}
	s.held = true
	if data, _ := t.src.memory(); data == nil {
		s.limit = all.limit()
	}
	if s.transposed && !s.src.inMemory() {
		return newTransposedStream(s, all), nil
	}
	return s, nil
}

// open is stream, and holds nothing if computed tensors are among the data: their funcs may
// close files.
func (t Tensor) open() (stream, error) {
	var all computations
	s, err := t.stream(&all)
	if err == nil && len(all.list) > 0 {
		s.release()
	}
	return s, err
}

// readAll fills dst with all bytes, with several goroutines where that pays.
// fresh is whether dst is new memory.
func readAll(s stream, dst []byte, fresh bool) error {
	share := int64(mem.BlockSize)
	if stored, ok := s.(*storedStream); ok {
		share = stored.share()
	}
	size := int64(len(dst))
	if size <= share { // without the preparations for several goroutines: a third less time for 1 KiB
		return readBlock(s, dst, fresh, 0, size)
	}
	return parallel.Blocks(s.workers(), size, share, func(pos, n int64) error {
		return readBlock(s, dst, fresh, pos, n)
	})
}

func readBlock(s stream, dst []byte, fresh bool, pos, n int64) error {
	if fresh {
		mem.Prepare(dst, pos, n)
	}
	return s.readAt(dst[pos:][:n], pos)
}

// errRefused stands in for the error of a writer.
var errRefused = errors.New("the writer failed")

// writeStream writes all size bytes of s to w. Errors of w are returned as they are, others
// with the prefix.
func writeStream(w io.Writer, s stream, size int64) (written int64, err error) {
	var refused error
	write := func(b []byte) error {
		n, err := writeFull(w, b)
		written += int64(n)
		if err != nil {
			refused = err
			return errRefused
		}
		return nil
	}
	if l, ok := lends(s, w); ok {
		for written < size && err == nil {
			_, err = l.lend(written, min(mem.BlockSize, size-written), write)
		}
	} else {
		block := s.block()
		err = parallel.InOrder(ahead(block), parallel.BlockCount(size, block), func(i int64) (*mem.Block, error) {
			pos := i * block
			return mem.Filled(min(block, size-pos), func(b []byte) error { return s.readAt(b, pos) })
		}, func(_ int64, b *mem.Block) error {
			defer b.Free()
			return write(b.Bytes)
		}, (*mem.Block).Free)
	}
	if err == errRefused {
		return written, refused
	}
	return written, prefixed(err)
}

// ahead returns how many blocks are read ahead of their use: at most 32 MiB.
func ahead(block int64) int { return int(min(readers, 4*mem.BlockSize/block)) }

// lends returns s as a stream whose source can lend its memory to w. If that is a
// mapping, w must touch it in a system call, so that a fault becomes an error. Any other
// writer may touch it on another goroutine, a hash too.
func lends(s stream, w io.Writer) (*storedStream, bool) {
	l, ok := s.(*storedStream)
	if !ok || !l.lendable() {
		return nil, false
	}
	_, file := w.(*os.File)
	return l, file || l.src.mapped == nil
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
