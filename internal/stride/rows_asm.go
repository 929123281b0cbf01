//go:build !purego && (amd64 || arm64)

package stride

// copyRows copies n rows of run bytes, at least 64, which start stride bytes apart in
// src. With each cache line it prefetches the line ahead bytes further on.
//
//go:noescape
func copyRows(dst, src *byte, run, stride, n, ahead int)

// farRows does what Line does, and reports whether it has.
func farRows(dst, src []byte, run, stride, n int) bool {
	if n == 0 || run < 64 || run > longest || stride < near {
		return false
	}
	_, _ = dst[n*run-1], src[(n-1)*stride+run-1] // or copyRows would touch other memory
	copyRows(&dst[0], &src[0], run, stride, n, ahead/run*stride)
	return true
}
