package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A stream produces the bytes of a tensor for one operation, in row-major order and
// little-endian: it gathers, converts, joins or computes them. Several goroutines may read it.
// There are five kinds: storedStream, transposedStream, joinedStream, computedStream and
// throughStream.
type stream interface {
	// release allows the sources to be closed, which the stream holds open from the beginning.
	// Afterwards each read holds open only the source that it needs.
	release()

	// readAt fills dst with the bytes from position pos on.
	readAt(dst []byte, pos int64) error

	// lend calls write with the n bytes from position pos on, in one or several calls, if they
	// are in memory already. Otherwise lent is false, and the caller has to read them.
	lend(pos, n int64, write func([]byte) error) (lent bool, err error)

	// workers returns the number of goroutines that may usefully read concurrently.
	workers() int

	// block returns the number of bytes that are best read in one call: rangeSize if each call
	// may cost a round trip, otherwise mem.BufferSize, so that they stay in the cache until they
	// are written. For transposed tensors it is more.
	block() int64
}

// streams are the streams of the tensors in a file, or of the pieces of a joined tensor.
type streams []stream

func (all streams) release() {
	for _, s := range all {
		s.release()
	}
}

// workers returns the number of goroutines that may usefully read: more if some streams have
// latency.
func (all streams) workers() int {
	n := parallel.CopyWorkers()
	for _, s := range all {
		n = max(n, s.workers())
	}
	return n
}

// block returns the largest block of all streams, in bytes.
func (all streams) block() int64 {
	n := int64(mem.BufferSize)
	for _, s := range all {
		n = max(n, s.block())
	}
	return n
}

// readAll fills dst with all bytes of s, with several goroutines if that pays. fresh means that
// dst is new memory.
func readAll(s stream, dst []byte, fresh bool) error {
	share := int64(mem.BlockSize)
	if stored, ok := s.(*storedStream); ok {
		share = stored.share()
	}
	size := int64(len(dst))
	if size <= share { // skipping the preparations for several goroutines saves a third of the time for 1 KiB
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

// errRefused stands for an error of the writer within writeStream, which returns that error
// instead.
var errRefused = errors.New("the writer failed")

// writeStream writes all size bytes of s to w. Errors of w are returned unchanged, others with
// the prefix.
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
		err = parallel.InOrder(blocksAhead(block), parallel.BlockCount(size, block), func(i int64) (*mem.Block, error) {
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

// blocksAhead returns the number of blocks of this size in bytes that are read before they are
// needed. Together they have at most 32 MiB.
func blocksAhead(block int64) int { return int(min(readers, 4*mem.BlockSize/block)) }

// lends returns s if its source can lend its memory to w. If that memory is a mapping, w must
// touch it in a system call, so that a fault becomes an error. Any other writer, even a hash, may
// touch it on another goroutine.
func lends(s stream, w io.Writer) (*storedStream, bool) {
	l, ok := s.(*storedStream)
	if !ok || !l.lendable() {
		return nil, false
	}
	_, file := w.(*os.File)
	return l, file || l.src.mapped == nil
}

// writeFull calls w.Write, and returns an error if that breaks its contract.
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

// A cache collects funcs that free memory. Streams whose bytes may be read in any order, and more
// than once, get one: they keep results in memory, and each adds a func that frees its results.
// All other streams get a nil *cache: an operation reads each byte once, so that they free a
// result after its last byte.
type cache []func()

// freeAll frees the memory that the streams hold.
func (c cache) freeAll() {
	for _, free := range c {
		free()
	}
}
