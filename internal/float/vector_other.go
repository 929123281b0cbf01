//go:build purego || !(amd64 || arm64)

package float

// vectorToF32 returns false, because there is no assembly for this platform.
func vectorToF32(dst, src []byte, from Format, nonTemporal bool) bool { return false }

// vectorFromF32 returns false, because there is no assembly for this platform.
func vectorFromF32(dst []byte, to Format, src []byte, nonTemporal bool) bool { return false }
