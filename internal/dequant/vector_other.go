//go:build purego || !amd64

package dequant

// Without assembly, the Vector funcs process no element, so that their callers' loops process all
// of them. The kernels are nil because groupsVector never calls them.

var mulGroups, addGroups, subGroups kernel

func unpackVector(dst []float32, src []byte, p Packing, numbers *Table) int       { return 0 }
func downVector(dst []float32, words []byte, shift, bits int, numbers *Table) int { return 0 }
func mulVector(dst, factors []float32) int                                        { return 0 }
func groupsVector(dst, numbers []float32, group int, f kernel) int                { return 0 }
