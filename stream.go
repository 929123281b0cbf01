package safetensors

import (
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A stream produces the bytes of a tensor for one operation: gathered, converted,
// joined or computed, in row-major order and little-endian. Several goroutines may
// read it. There are three kinds: storedStream, joinedStream, computedStream.
type stream interface {
	size() int64

	// hold keeps the sources open until release, unless a computed tensor is
	// among them: its func may close files. Then each read keeps them open.
	hold() error
	release()

	// readAt fills dst with the bytes from position pos on.
	readAt(dst []byte, pos int64) error

	// workers returns how many goroutines may usefully read concurrently.
	workers() int

	// computed returns the computed tensors that it reads, in order.
	computed() []*computedStream
}

// stream returns the bytes of t.
func (t Tensor) stream() (stream, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	switch {
	case t.concat != nil:
		return t.concat.stream()
	case t.src != nil && t.src.compute != nil:
		return newComputedStream(t), nil
	}
	return newStoredStream(t), nil
}

// open returns the bytes of t, and holds them: the caller calls release.
func (t Tensor) open() (stream, error) {
	s, err := t.stream()
	if err != nil {
		return nil, err
	}
	return s, s.hold()
}

// readAll fills dst, of s.size() bytes, with several goroutines where that pays.
func readAll(s stream, dst []byte) error {
	return parallel.Blocks(s.workers(), s.size(), mem.BlockSize, func(pos, n int64) error {
		return s.readAt(dst[pos:][:n], pos)
	})
}

// writeStream writes all bytes of s to w.
func writeStream(w io.Writer, s stream) (written int64, err error) {
	size := s.size()
	write := func(b []byte) error {
		n, err := writeFull(w, b)
		written += int64(n)
		return err
	}
	if l, ok := lends(s, w); ok {
		for written < size && err == nil {
			err = l.lend(written, min(mem.BlockSize, size-written), write)
		}
		return written, err
	}
	err = parallel.InOrder(parallel.BlockCount(size, mem.BlockSize), func(i int64) (*mem.Block, error) {
		pos := i * mem.BlockSize
		return mem.Filled(min(mem.BlockSize, size-pos), func(b []byte) error { return s.readAt(b, pos) })
	}, func(_ int64, b *mem.Block) error {
		defer b.Free()
		return write(b.Bytes)
	}, (*mem.Block).Free)
	return written, err
}

// lends returns s as a stream whose source can lend its memory to w. If that is
// a mapping, w must touch it on this goroutine or in a system call, so that a
// fault becomes an error; io.PipeWriter, for one, does not.
func lends(s stream, w io.Writer) (*storedStream, bool) {
	l, ok := s.(*storedStream)
	if !ok || !l.lendable() {
		return nil, false
	}
	switch w.(type) {
	case *os.File, hash.Hash:
		return l, true
	}
	return l, !l.src.mapped
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
