//go:build purego || !(amd64 || arm64)

package float

// vectorToF32 returns false: there is no assembly here, the loops convert src.
func vectorToF32(dst, src []byte, from Format, nonTemporal bool) bool { return false }

// vectorFromF32 returns false, as vectorToF32 does.
func vectorFromF32(dst []byte, to Format, src []byte, nonTemporal bool) bool { return false }
