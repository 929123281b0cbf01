package dequant

// Mul multiplies dst by one factor per group of adjacent elements: dst[i] by
// factors[(skip+i)/group]. skip is the number of elements of the first group that come before dst,
// and is less than group.
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

// Add adds one term per group to dst. The arguments have the same meaning as those of Mul.
func Add(dst, terms []float32, group, skip int) {
	inGroups(dst, terms, group, skip, addGroups, func(part []float32, term float32) {
		for i := range part {
			part[i] += term
		}
	})
}

// Sub subtracts one term per group from dst. The arguments have the same meaning as those of Mul.
func Sub(dst, terms []float32, group, skip int) {
	inGroups(dst, terms, group, skip, subGroups, func(part []float32, term float32) {
		for i := range part {
			part[i] -= term
		}
	})
}

// A kernel applies an operation to adjacent groups of elements in dst, with one number per group.
// Each group has 8 × blocks elements.
type kernel func(dst, numbers *float32, groups, blocks int)

// inGroups applies an operation to dst, group by group, each with its own number. It uses the
// kernel f for the elements that groupsVector can handle, and the func loop for the remaining ones.
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
