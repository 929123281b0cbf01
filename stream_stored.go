package safetensors

import (
	"math"
	"sync"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A storedStream produces the bytes of a tensor whose elements are in one source.
type storedStream struct {
	src        *source
	off        int64   // where the first element starts in the data buffer
	from       *gather // the bytes to gather from there on; nil if they are contiguous
	transposed bool    // whether the order of the elements differs from their order in the source
	held       bool    // whether the source is held open until release
	dtypes     []DType // the dtype in the source, then each dtype to convert to; nil if nothing is converted
	bytes      int64   // size of the stream in bytes, after conversion
	limit      reads   // limits the concurrent reads of the whole operation; set only if the source is a reader
	watch      *watch  // the watches that count the bytes read, or nil
}

// newStoredStream returns the stream of the elements that t selects in src, whatever the origin of
// t is. src may be nil if the caller sets the source later.
func newStoredStream(src *source, t Tensor) *storedStream {
	s := &storedStream{src: src, off: t.off, dtypes: t.dtypes, bytes: t.size, watch: t.watch}
	if t.dtypes != nil {
		s.bytes = t.Size()
	}
	if t.strides != nil {
		g, _ := t.gather() // Tensor.selecting has checked it
		s.from, s.transposed = &g, !g.inOrder()
	}
	return s
}

func (s *storedStream) release() {
	if s.held {
		s.held = false
		s.src.done()
	}
}

// workers returns a smaller number for memory than for a reader: processors limit the copies from
// memory, and latency limits the reads from a reader.
func (s *storedStream) workers() int {
	switch {
	case s.src.inMemory() || s.src.mapped != nil && s.from != nil:
		return parallel.CopyWorkers()
	case s.from != nil && s.src.ranges == nil:
		return 1 // readLine itself reads the runs of a line concurrently
	}
	return readers
}

func (s *storedStream) block() int64 {
	switch {
	case s.transposed:
		// A block of several columns reads each row once, instead of once for each column.
		return s.from.columns(mem.BlockSize)
	case s.src.ranges != nil:
		return rangeSize
	}
	return mem.BufferSize
}

// memoryFor returns the number of bytes of memory that a read of n bytes takes: for its result, and
// for the stored elements if they are read into a buffer before they are converted.
func (s *storedStream) memoryFor(n int64) int64 {
	if s.dtypes == nil || s.src.mem != nil {
		return n
	}
	return n + s.block()
}

// share returns the number of bytes that each of several goroutines produces at a time. It is
// smaller if the bytes are gathered in memory, which takes longer than a copy.
func (s *storedStream) share() int64 {
	switch {
	case s.transposed:
		return s.from.columns(max(mem.BlockSize, s.bytes/(4*int64(s.workers()))))
	case s.from != nil && s.src.mem != nil:
		return min(max(mem.BufferSize/4, s.bytes/(8*int64(s.workers()))), mem.BlockSize)
	}
	return mem.BlockSize
}

// lendable reports whether the bytes of the stream are in the memory of the source.
func (s *storedStream) lendable() bool { return s.src.mem != nil && s.plain() }

// plain reports whether the bytes of the stream are adjacent bytes of the source, unconverted.
func (s *storedStream) plain() bool { return s.from == nil && s.dtypes == nil }

func (s *storedStream) lend(pos, n int64, write func([]byte) error) (lent bool, err error) {
	if !s.lendable() {
		return false, nil
	}
	if err := s.use(); err != nil {
		return true, err
	}
	defer s.done()
	if err = s.src.lend(s.off+pos, n, write); err == nil {
		err = s.tell(pos, n)
	}
	return true, err
}

// use holds the source open until done is called. If the source is held anyway, both do nothing.
func (s *storedStream) use() error {
	if s.held {
		return nil
	}
	return s.src.locate(s.off, s.src.acquire())
}

func (s *storedStream) done() {
	if !s.held {
		s.src.done()
	}
}

func (s *storedStream) readAt(dst []byte, pos int64) error {
	if len(dst) == 0 {
		return nil
	}
	if err := s.use(); err != nil {
		return err
	}
	defer s.done()
	if err := s.produce(dst, pos); err != nil || s.watch == nil {
		return err
	}
	return s.tell(pos, int64(len(dst)))
}

// produce fills dst with the bytes of the stream from position pos on.
func (s *storedStream) produce(dst []byte, pos int64) error {
	if s.dtypes == nil {
		return s.fetch(dst, pos)
	}
	group := int64(s.dtypes[len(s.dtypes)-1].Bits()) // size in bytes of 8 elements, which fill whole bytes in every dtype
	for len(dst) > 0 {
		before := pos % group // number of bytes of the group that come before pos
		n := int64(len(dst)) / group * group
		if pos+int64(len(dst)) == s.bytes {
			n = int64(len(dst)) // the last group may be short
		}
		var err error
		if before == 0 && n > 0 {
			err = s.readGroups(dst[:n], pos)
		} else {
			var buf [64]byte // enough for 8 elements of the widest dtype
			b := buf[:min(group, s.bytes-(pos-before))]
			err = s.readGroups(b, pos-before)
			n = int64(copy(dst, b[before:]))
		}
		if err != nil {
			return err
		}
		dst, pos = dst[n:], pos+n
	}
	return nil
}

// readGroups fills dst with whole groups from position pos on.
func (s *storedStream) readGroups(dst []byte, pos int64) error {
	from, to := s.dtypes[0], s.dtypes[len(s.dtypes)-1]
	n := int64(len(dst)) * 8 / int64(to.Bits())
	first := pos * 8 / int64(to.Bits())
	if len(s.dtypes) == 2 && s.src.inMemory() && s.from == nil {
		b := s.src.mem[s.off+first*int64(from.Bits())/8:][:n*int64(from.Bits())/8]
		float.Convert(dst, to.float(), b, from.float(), s.bytes >= float.NonTemporalFrom)
		return nil
	}
	return s.convertChunks(dst, first, n)
}

// chunkElements is the number of elements that are converted per step if they cannot be converted
// straight from memory: so many stay in the cache. It is a multiple of 8, so that chunks of
// sub-byte dtypes start and end on byte boundaries.
const chunkElements = 64 << 10

// A chunk is memory for the conversion of chunkElements elements: one half holds the input of a
// step and the other its output, with room for the widest dtype.
type chunk [2][8 * chunkElements]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// convertChunks fills dst with n converted elements from element first on. From memory it gathers
// one chunk per conversion; from a reader it reads more in one call.
func (s *storedStream) convertChunks(dst []byte, first, n int64) error {
	c := chunks.Get().(*chunk)
	defer chunks.Put(c)
	in, most := c[0][:], int64(chunkElements)
	bits, toBits := int64(s.dtypes[0].Bits()), int64(s.dtypes[len(s.dtypes)-1].Bits())
	if s.src.mem == nil || s.src.mapped != nil && s.from == nil || s.transposed {
		most = min(n, s.block()/bits*8)
		b := mem.NewBlock(most * bits / 8)
		defer b.Free()
		in = b.Bytes
	}
	for ; n > 0; n -= min(n, most) {
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

// convertChunk converts the elements in the slice in from each dtype of s to the next. The last
// result is written to dst, the others to the halves of c. The slice in may be the first half.
func (s *storedStream) convertChunk(dst, in []byte, c *chunk) {
	n := len(in) * 8 / s.dtypes[0].Bits()
	last := len(s.dtypes) - 1
	for i, to := range s.dtypes[1:] {
		out := dst
		if i+1 < last {
			out = c[(i+1)%2][:n*to.Bits()/8]
		}
		float.Convert(out, to.float(), in, s.dtypes[i].float(), i == last-1 && s.bytes >= float.NonTemporalFrom)
		in = out
	}
}

// fetch fills dst with the bytes of the tensor from position pos on, before any conversion,
// little-endian.
func (s *storedStream) fetch(dst []byte, pos int64) (err error) {
	switch {
	case s.from == nil:
		err = s.src.read(dst, s.off+pos, s.limit)
	case s.src.mem != nil:
		err = s.src.gather(dst, s.off, s.from, pos)
	case s.src.ranges != nil && !s.transposed:
		err = s.src.ranges.ReadRanges(s.from.runs(dst, pos, s.src.base+s.off))
	default:
		for l := range s.from.lines(s.off, pos, int64(len(dst))) {
			if err = s.src.readLine(dst[:l.size()], l, s.limit); err != nil {
				break
			}
			dst = dst[l.size():]
		}
	}
	return s.src.locate(s.off, err)
}

// tell tells all watches that n bytes of s were read from position pos on. Each counts bytes of
// its own dtype.
func (s *storedStream) tell(pos, n int64) error {
	for w := s.watch; w != nil; w = w.next {
		n := n
		if s.dtypes != nil {
			from, to := int64(s.dtypes[w.at].Bits()), int64(s.dtypes[len(s.dtypes)-1].Bits())
			before, _ := scaled(pos, from, to)
			end, _ := scaled(pos+n, from, to)
			n = end - before // rounded so that the calls for all positions together count exactly the size of the tensor
		}
		for n > 0 {
			part := min(n, math.MaxInt) // an int may have 32 bits
			if err := w.read(int(part)); err != nil {
				return bare(err)
			}
			n -= part
		}
	}
	return nil
}
