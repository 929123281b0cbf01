//go:build purego || !amd64

package jsonscan

// plainBlocks examines no bytes, so that PlainLength does all the work: only amd64 has a faster way.
func plainBlocks([]byte) (n int, found bool) { return 0, false }
