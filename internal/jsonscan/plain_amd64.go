//go:build !purego

package jsonscan

// plainBlocks does the same as PlainLength for those whole blocks of 16 bytes that b has. found
// reports whether a byte that needs an escape ends the plain bytes; if not, n is the length of all
// blocks.
//
//go:noescape
func plainBlocks(b []byte) (n int, found bool)
