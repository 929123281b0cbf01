package quant

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A span consists of the indices from start up to, but not including, stop.
type span struct{ start, stop int }

func (s span) len() int { return s.stop - s.start }

// over returns the indices of the groups that have elements in s. group is the number of elements
// in a group.
func (s span) over(group int) span { return span{s.start / group, cdiv(s.stop, group)} }

// cdiv returns n/d, rounded up.
func cdiv(n, d int) int { return n/d + min(n%d, 1) }

// A grid is a func that returns the numbers at some lines and positions of one matrix, in row-major
// order. batch is the index of the matrix among several. The result uses the memory of buf if it is
// large enough.
type grid func(buf []float32, batch int, lines, positions span) ([]float32, error)

// read returns the elements at some lines and columns of a matrix, in row-major order. batch is the
// index of the matrix among several. The result uses the memory of buf if it is large enough.
func read[T safetensors.Element](buf []T, t safetensors.Tensor, batch int, lines, columns span) ([]T, error) {
	ranges := []safetensors.Range{safetensors.At(batch), safetensors.Span(lines.start, lines.stop), safetensors.Span(columns.start, columns.stop)}
	part, err := t.Slice(ranges[3-len(t.Shape()):]...)
	if err != nil {
		return nil, err
	}
	return safetensors.Append(buf[:0], part)
}

// floatGrid returns the grid of t, a tensor of floats. Unless by is the zero Tensor, it has one
// number, by which the floats are multiplied or, if divided is true, divided.
func floatGrid(t, by safetensors.Tensor, divided bool) grid {
	factor := &once[[]float32]{read: func() ([]float32, error) { return safetensors.Append[float32](nil, by) }}
	return func(buf []float32, batch int, lines, positions span) ([]float32, error) {
		numbers, err := read(buf, t, batch, lines, positions)
		if err != nil || by.DType() == 0 {
			return numbers, err
		}
		n, err := factor.get()
		switch {
		case err != nil:
		case divided:
			for i := range numbers {
				numbers[i] /= n[0]
			}
		default:
			dequant.Mul(numbers, n, max(1, len(numbers)), 0)
		}
		return numbers, err
	}
}

// A once caches the first successful read. Errors are not cached.
type once[T any] struct {
	read  func() (T, error)
	mu    sync.Mutex
	known bool
	value T
}

func (o *once[T]) get() (_ T, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known {
		o.value, err = o.read()
		o.known = err == nil
	}
	return o.value, err
}

// A codes holds the packed values of a quantised tensor, or of its zero points or scales.
type codes struct {
	stored  safetensors.Tensor // tensor that holds the codes: each of its lines holds one line of codes, unless down is true
	packing dequant.Packing
	down    bool // whether codes are packed down the columns: 32 lines of codes take as many lines of 32-bit words as a code has bits
	numbers *dequant.Table
	add     uint32 // is added to each word, if codes are packed down the columns: a one in each code undoes what GPTQModel has subtracted
}

// A stretch holds the bytes of codes in adjacent lines, starting at some position.
type stretch struct {
	bytes []byte
	width int // size of a line in bytes
	line  int // index of the first line of codes, or of the first line of words if codes are packed down
	start int // index of the first position in each line
}

// word returns the index of the line of words that has the first bit of a line of codes, if codes
// are packed down.
func (g *codes) word(line int) int { return line/32*g.packing.Bits + line%32*g.packing.Bits/32 }

// fetch reads the bytes that unpack needs for these lines and positions. The stretch uses the
// memory of buf if it is large enough.
func (g *codes) fetch(buf []byte, batch int, lines, positions span) (stretch, error) {
	shape, size := g.stored.Shape(), g.stored.DType().Bits()/8
	unit, elements := 8*size, g.packing.Bits // a number of positions whose codes fill whole elements, and the number of these elements
	if g.down {
		unit, elements = 1, 1
		lines = span{g.word(lines.start), wordsFor(lines.stop, g.packing.Bits)}
	}
	columns := span{positions.start / unit * elements, min(cdiv(positions.stop, unit)*elements, shape[len(shape)-1])}
	b, err := read(buf, g.stored, batch, lines, columns)
	if g.add != 0 && err == nil {
		for word := range slices.Chunk(b, 4) {
			binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)+g.add)
		}
	}
	return stretch{bytes: b, width: columns.len() * size, line: lines.start, start: positions.start / unit * unit}, err
}

// unpack sets dst to the numbers of a line, starting at a position. s must be a result of fetch for
// a range that contains all of them.
func (g *codes) unpack(dst []float32, s *stretch, line, position int) {
	if g.down {
		if g.packing.Order != nil {
			line = line&^7 + slices.Index(g.packing.Order[:], line&7)
		}
		bit := line % 32 * g.packing.Bits
		row := s.bytes[(g.word(line)-s.line)*s.width+4*(position-s.start):]
		var next []byte
		if bit%32+g.packing.Bits > 32 {
			next = row[s.width:]
		}
		dequant.UnpackDown(dst, row, next, bit%32, g.packing.Bits, g.numbers)
		return
	}
	skip := position % 8
	row := s.bytes[(line-s.line)*s.width:][:s.width]
	row = row[(position-skip-s.start)*g.packing.Bits/8:]
	switch {
	case g.numbers == e4m3Numbers[8]() && mem.SwappedUnit[float32]() == 0:
		float.Convert(mem.BytesOf(dst), float.F32, row[skip:][:len(dst)], float.E4M3, false)
	case skip > 0:
		var head [8]float32
		g.packing.Unpack(head[:min(8, len(row)*8/g.packing.Bits)], row, g.numbers)
		n := copy(dst, head[skip:])
		g.packing.Unpack(dst[n:], row[min(g.packing.Bits, len(row)):], g.numbers)
	default:
		g.packing.Unpack(dst, row, g.numbers)
	}
}

// wordsFor returns the number of 32-bit words that n codes take.
func wordsFor(n, bits int) int { return n/32*bits + cdiv(n%32*bits, 32) }
