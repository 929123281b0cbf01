//go:build purego || !(amd64 || arm64)

package stride

// farRows returns false because there is no assembly for this platform: Line copies row by row.
func farRows(dst, src []byte, run, stride, n int) bool { return false }
