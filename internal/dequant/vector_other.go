//go:build purego || !amd64

package dequant

// There is no assembly here: the loops do everything.

func unpackVector(dst []float32, src []byte, p Packing, numbers *Table) int       { return 0 }
func downVector(dst []float32, words []byte, shift, bits int, numbers *Table) int { return 0 }
func mulVector(dst, factors []float32) int                                        { return 0 }
func mulGroupsVector(dst, factors []float32, group int) int                       { return 0 }
func subGroupsVector(dst, terms []float32, group int) int                         { return 0 }
func addGroupsVector(dst, terms []float32, group int) int                         { return 0 }
