package mem

import "sync"

const (
	// BlockSize is the number of bytes of a large copy that one goroutine copies at a time. It is
	// also the number of bytes of a mapping that are populated before they are touched. Conversions
	// work on groups of 8 elements: as a multiple of 64 bytes, a block holds whole groups of every
	// dtype to which elements can be converted.
	BlockSize = 8 << 20

	// BufferSize is the size in bytes of the memory of the smallest Block. It is also the number of
	// bytes of a read whose data should stay in the cache of the processor until it is used.
	BufferSize = 1 << 20
)

// A Block is reusable memory for data that is gathered or converted on its way to a writer or to a
// converter.
type Block struct{ Bytes []byte }

// blocks holds the memory of unused Blocks in one pool per size. The sizes double from BufferSize
// to BlockSize. If all memory had the same size, a Block of 2 MiB would take 8 MiB.
var blocks = [...]sync.Pool{{New: allocate(0)}, {New: allocate(1)}, {New: allocate(2)}, {New: allocate(3)}}

// allocate returns a func that allocates a Block for blocks[class].
func allocate(class int) func() any {
	return func() any { return &Block{make([]byte, BufferSize<<class)} }
}

// NewBlock returns a Block of n uninitialized bytes, where n ≤ BlockSize. The caller must free it.
func NewBlock(n int64) *Block {
	b := pool(n).Get().(*Block)
	b.Bytes = b.Bytes[:n]
	return b
}

// pool returns the pool of the smallest blocks that hold n bytes.
func pool(n int64) *sync.Pool {
	class := 0
	for n > BufferSize<<class {
		class++
	}
	return &blocks[class]
}

// Free makes the memory of b available to NewBlock. Freeing a nil Block does nothing.
func (b *Block) Free() {
	if b != nil {
		pool(int64(cap(b.Bytes))).Put(b)
	}
}

// Filled returns a Block of n bytes, which it fills by calling the func fill.
func Filled(n int64, fill func([]byte) error) (*Block, error) {
	b := NewBlock(n)
	if err := fill(b.Bytes); err != nil {
		b.Free()
		return nil, err
	}
	return b, nil
}
