package dequant

// Mul multiplies dst by factors in groups: element i by factors[(skip+i)/group].
// skip < group is how much of the first group comes before dst.
func Mul(dst, factors []float32, group, skip int) {
	if group == 1 {
		for i := mulVector(dst, factors); i < len(dst); i++ {
			dst[i] *= factors[i]
		}
		return
	}
	inGroups(dst, factors, group, skip, mulGroups, func(part []float32, factor float32) {
		for i := range part {
			part[i] *= factor
		}
	})
}

// Add adds terms to dst in groups, as Mul multiplies.
func Add(dst, terms []float32, group, skip int) {
	inGroups(dst, terms, group, skip, addGroups, func(part []float32, term float32) {
		for i := range part {
			part[i] += term
		}
	})
}

// Sub subtracts terms from dst in groups, as Mul multiplies.
func Sub(dst, terms []float32, group, skip int) {
	inGroups(dst, terms, group, skip, subGroups, func(part []float32, term float32) {
		for i := range part {
			part[i] -= term
		}
	})
}

// A kernel does an operation with a number for each group, of whole blocks of 8 elements.
type kernel func(dst, numbers *float32, groups, blocks int)

// inGroups does an operation with the number of each group: f with whole groups, as far as
// groupsVector can, loop with what is left.
func inGroups(dst, numbers []float32, group, skip int, f kernel, loop func(part []float32, number float32)) {
	for len(dst) > 0 {
		if skip == 0 {
			if n := groupsVector(dst, numbers, group, f); n > 0 {
				dst, numbers = dst[n:], numbers[n/group:]
				continue
			}
		}
		n := min(group-skip, len(dst))
		done := 0
		if whole := n &^ 7; whole > 0 {
			done = groupsVector(dst[:whole], numbers, whole, f)
		}
		loop(dst[done:n], numbers[0])
		dst, numbers, skip = dst[n:], numbers[1:], 0
	}
}
