package mem

import "sync"

const (
	// BlockSize is the share of a large copy that one goroutine does at a time,
	// in bytes. It is also how much of a mapping is populated before it is
	// touched. As a multiple of 64 it holds whole groups of 8 elements, in which
	// conversions work, of every dtype that one can convert to.
	BlockSize = 8 << 20

	// BufferSize is the memory for data too small for a block.
	BufferSize = 1 << 20
)

// A Block is reusable memory for data that is gathered or converted on its way
// to a writer or to a converter.
type Block struct{ Bytes []byte }

var (
	blocks  = sync.Pool{New: func() any { return &Block{make([]byte, BlockSize)} }}
	buffers = sync.Pool{New: func() any { return &Block{make([]byte, BufferSize)} }}
)

// NewBlock returns a Block of n ≤ BlockSize bytes, uninitialized. The caller
// frees it.
func NewBlock(n int64) *Block {
	b := pool(n).Get().(*Block)
	b.Bytes = b.Bytes[:n]
	return b
}

func pool(n int64) *sync.Pool {
	if n > BufferSize {
		return &blocks
	}
	return &buffers
}

// Free makes the memory of b available to NewBlock. A nil Block has none.
func (b *Block) Free() {
	if b != nil {
		pool(int64(cap(b.Bytes))).Put(b)
	}
}

// Filled returns a Block of n bytes that fill has filled.
func Filled(n int64, fill func([]byte) error) (*Block, error) {
	b := NewBlock(n)
	if err := fill(b.Bytes); err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}
