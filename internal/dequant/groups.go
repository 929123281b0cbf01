package dequant

// Mul multiplies dst by factors in groups: element i by factors[(skip+i)/group].
// skip < group is how much of the first group comes before dst.
func Mul(dst, factors []float32, group, skip int) {
	if group == 1 {
		factors = factors[:len(dst)]
		n := mulVector(dst, factors)
		for i, f := range factors[n:] {
			dst[n+i] *= f
		}
		return
	}
	each(dst, group, skip, func(g int, part []float32) {
		f := factors[g]
		n := scaleVector(part, f)
		for i := range part[n:] {
			part[n+i] *= f
		}
	})
}

// Add adds terms to dst in groups, as Mul multiplies.
func Add(dst, terms []float32, group, skip int) {
	each(dst, group, skip, func(g int, part []float32) {
		t := terms[g]
		for i := range part {
			part[i] += t
		}
	})
}

// Sub subtracts terms from dst in groups, as Mul multiplies.
func Sub(dst, terms []float32, group, skip int) {
	each(dst, group, skip, func(g int, part []float32) {
		t := terms[g]
		for i := range part {
			part[i] -= t
		}
	})
}

// each calls f for the part of dst in each group.
func each(dst []float32, group, skip int, f func(g int, part []float32)) {
	for g := 0; len(dst) > 0; g++ {
		n := min(group-skip, len(dst))
		f(g, dst[:n])
		dst, skip = dst[n:], 0
	}
}
