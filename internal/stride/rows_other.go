//go:build purego || !(amd64 || arm64)

package stride

// farRows returns false: there is no assembly here, Line copies row by row.
func farRows(dst, src []byte, run, stride, n int) bool { return false }
