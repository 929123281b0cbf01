package quant

import (
	"sync"

	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// numbers maps codes to the numbers that they represent: for each number of bits it has a func that
// returns a table. The table is made by the first call, because most programs that import this
// package need few tables or none. Tables must not be modified.
type numbers [9]func() *dequant.Table

// These are tables of integers. A checkpoint may have a hundred thousand modules, which share the
// tables.
var (
	signedNumbers   = tables(func(bits, code int) float32 { return float32(int8(code<<(8-bits)) >> (8 - bits)) })
	offsetNumbers   = tables(func(bits, code int) float32 { return float32(code - 1<<(bits-1)) })
	unsignedNumbers = tables(func(_, code int) float32 { return float32(code) })
	nextNumbers     = tables(func(bits, code int) float32 { return float32((code + 1) & (1<<bits - 1)) }) // for zero points whose stored code is one less than their value
)

// These are tables of floats.
var (
	e4m3Numbers = numbers{8: floatTable(float.E4M3)}
	e5m2Numbers = numbers{8: floatTable(float.E5M2)}
	e2m1Numbers = numbers{4: floatTable(float.F4)}
)

// tables returns a table for each number of bits, from 1 to 8. number returns the number of one
// code.
func tables(number func(bits, code int) float32) (all numbers) {
	for bits := 1; bits < len(all); bits++ {
		all[bits] = sync.OnceValue(func() *dequant.Table {
			table := new(dequant.Table)
			for code := range 1 << bits {
				table[code] = number(bits, code)
			}
			return table
		})
	}
	return all
}

// floatTable returns a func that returns the numbers of the codes of a float format.
func floatTable(format float.Format) func() *dequant.Table {
	return sync.OnceValue(func() *dequant.Table {
		table := new(dequant.Table)
		bits := format.Bits()
		codes := packCodes(bits, func(code float64) byte { return byte(code) })(unsignedNumbers[bits]()[:1<<bits])
		float.Convert(mem.BytesOf(table[:1<<bits]), float.F32, codes, format, false)
		inOrder(table[:])
		return table
	})
}

// packCodes returns a func that packs numbers as codes of a few bits, with the first code in the
// low bits of a byte. code returns the code of a number.
func packCodes(bits int, code func(v float64) byte) func(x []float32) []byte {
	return func(x []float32) []byte {
		b := make([]byte, len(x)*bits/8)
		for i, v := range x {
			b[i*bits/8] |= code(float64(v)) << (i * bits % 8)
		}
		return b
	}
}

// inOrder swaps the bytes of each element between the order of this machine and little-endian
// order, in place. It returns the bytes of x.
func inOrder(x []float32) []byte {
	b := mem.BytesOf(x)
	mem.Swap[float32](b)
	return b
}
