package safetensors

import "sync"

const (
	// blockSize is the share of a large copy that one goroutine does at a time.
	// It is also how much of a mapping is brought in before it is touched.
	blockSize = 8 << 20

	// bufferSize is the memory for what is too small for a block.
	bufferSize = 1 << 20
)

// A block is memory for data that is gathered or converted on its way to a
// writer or to a converter.
type block struct{ bytes []byte }

var (
	blocks  = sync.Pool{New: func() any { return &block{make([]byte, blockSize)} }}
	buffers = sync.Pool{New: func() any { return &block{make([]byte, bufferSize)} }}
)

// newBlock returns a block of n ≤ blockSize bytes of any content. The caller
// frees it.
func newBlock(n int64) *block {
	pool := &blocks
	if n <= bufferSize {
		pool = &buffers
	}
	b := pool.Get().(*block)
	b.bytes = b.bytes[:n]
	return b
}

// free gives the memory of b back. A nil block has none.
func (b *block) free() {
	switch {
	case b == nil:
	case cap(b.bytes) == blockSize:
		blocks.Put(b)
	default:
		buffers.Put(b)
	}
}

// filled returns a block of n bytes that read has filled.
func filled(n int64, read func([]byte) error) (*block, error) {
	b := newBlock(n)
	if err := read(b.bytes); err != nil {
		b.free()
		return nil, err
	}
	return b, nil
}
