//go:build !purego && (amd64 || arm64)

package stride

// copyRows copies n rows of run bytes each, where run is at least 64. The rows start stride bytes
// apart in src and are adjacent in dst. With each cache line it prefetches the line that starts
// ahead bytes after it.
//
//go:noescape
func copyRows(dst, src *byte, run, stride, n, ahead int)

// farRows does the same as Line, if the rows are worth prefetching. Otherwise it does nothing and
// returns false.
func farRows(dst, src []byte, run, stride, n int) bool {
	if n == 0 || run < 64 || run > longest || stride < near {
		return false
	}
	// The check panics here if a slice is too short, because copyRows would access memory beyond
	// it.
	_, _ = dst[n*run-1], src[(n-1)*stride+run-1]
	copyRows(&dst[0], &src[0], run, stride, n, ahead/run*stride)
	return true
}
