//go:build purego || !amd64

package dequant

// There is no assembly here: the loops do everything.

func unpack4Vector(dst []float32, src []byte, order *[8]int, numbers *[16]float32) int { return 0 }
func downVector(dst []float32, words []byte, shift, bits int, numbers *Table) int      { return 0 }
func mulVector(dst, factors []float32) int                                             { return 0 }
func subVector(dst, terms []float32) int                                               { return 0 }
func mulGroupsVector(dst, factors []float32, group int) int                            { return 0 }
func subGroupsVector(dst, terms []float32, group int) int                              { return 0 }
func addGroupsVector(dst, terms []float32, group int) int                              { return 0 }
func transposeVector(dst []float32, stride int, tile []float32, width, height int) int {
	return 0
}
