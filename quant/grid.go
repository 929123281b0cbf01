package quant

import (
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A span is the range of numbers from start up to, but not including, stop.
type span struct{ start, stop int }

func (s span) len() int { return s.stop - s.start }

// over returns the numbers of the groups that s touches.
func (s span) over(group int) span { return span{s.start / group, cdiv(s.stop, group)} }

// cdiv returns n/d, rounded up.
func cdiv(n, d int) int { return n/d + min(n%d, 1) }

// A grid returns the numbers in some lines and positions of one of several matrices in a
// checkpoint, in the memory of buf if it has the room.
type grid func(buf []float32, batch int, lines, positions span) ([]float32, error)

// read returns lines and columns of a matrix, or of one of several, in buf if it has the room.
func read[T safetensors.Element](buf []T, t safetensors.Tensor, batch int, lines, columns span) ([]T, error) {
	ranges := []safetensors.Range{safetensors.At(batch), safetensors.Span(lines.start, lines.stop), safetensors.Span(columns.start, columns.stop)}
	part, err := t.Slice(ranges[3-len(t.Shape()):]...)
	if err != nil {
		return nil, err
	}
	return safetensors.Append(buf[:0], part)
}

// floats is the grid of a tensor of floats. All are scaled by one number, unless by is the zero
// Tensor: multiplied by it, or divided.
func floats(t, by safetensors.Tensor, divided bool) grid {
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

// A once keeps what it read first. An error is not kept: the next call reads again.
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

// codes are packed.
type codes struct {
	stored  safetensors.Tensor // a line of codes in each of its lines
	packing dequant.Packing
	down    bool // 32 lines are in as many lines of words of 32 bits as a code has bits
	numbers *dequant.Table
}

// A stretch is what was read of codes: bytes of adjacent lines, from some position on.
type stretch struct {
	bytes []byte
	width int // bytes of a line
	line  int // the first; of words, if codes go down
	start int // the first position
}

// word returns the line of words that has the first bit of a line.
func (g *codes) word(line int) int { return line/32*g.packing.Bits + line%32*g.packing.Bits/32 }

// fetch reads what unpack needs, into buf if it has the room.
func (g *codes) fetch(buf []byte, batch int, lines, positions span) (stretch, error) {
	shape, size := g.stored.Shape(), g.stored.DType().Bits()/8
	unit, elements := 8*size, g.packing.Bits // positions that start an element together, and how many they fill
	if g.down {
		unit, elements = 1, 1
		lines = span{g.word(lines.start), wordsFor(lines.stop, g.packing.Bits)}
	}
	columns := span{positions.start / unit * elements, min(cdiv(positions.stop, unit)*elements, shape[len(shape)-1])}
	b, err := read(buf, g.stored, batch, lines, columns)
	return stretch{bytes: b, width: columns.len() * size, line: lines.start, start: positions.start / unit * unit}, err
}

// unpack sets dst to the numbers of a line from a position on.
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
	case g.numbers == e4m3Numbers[8] && mem.SwappedUnit[float32]() == 0:
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

// tables returns the numbers of codes of each size.
func tables(number func(bits, code int) float32) (of numbers) {
	for bits := 1; bits < len(of); bits++ {
		of[bits] = new(dequant.Table)
		for code := range 1 << bits {
			of[bits][code] = number(bits, code)
		}
	}
	return of
}

// Those of integers. A checkpoint may have a hundred thousand modules, which share them.
var (
	signedNumbers   = tables(func(bits, code int) float32 { return float32(int8(code<<(8-bits)) >> (8 - bits)) })
	offsetNumbers   = tables(func(bits, code int) float32 { return float32(code - 1<<(bits-1)) })
	unsignedNumbers = tables(func(_, code int) float32 { return float32(code) })
	nextNumbers     = tables(func(bits, code int) float32 { return float32((code + 1) & (1<<bits - 1)) }) // of zero points stored less 1
)

// Those of floats.
var (
	e4m3Numbers = numbers{8: floatTable(float.E4M3)}
	e5m2Numbers = numbers{8: floatTable(float.E5M2)}
	e2m1Numbers = numbers{4: floatTable(float.F4)}
)

func floatTable(format float.Format) *dequant.Table {
	of := new(dequant.Table)
	bits := format.Bits()
	codes := packCodes(bits, func(code float64) byte { return byte(code) })(unsignedNumbers[bits][:1<<bits])
	float.Convert(mem.BytesOf(of[:1<<bits]), float.F32, codes, format, false)
	inOrder(of[:])
	return of
}
