//go:build !purego

package jsonscan

// plainBlocks does the work of PlainLength for the whole blocks of 16 bytes at the start of b. If
// a byte in them needs an escape, found is true, and n is the number of bytes before it. Otherwise
// n is the length of these blocks.
//
//go:noescape
func plainBlocks(b []byte) (n int, found bool)
