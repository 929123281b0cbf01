//go:build purego || !(amd64 || arm64)

package safetensors

// vectorToF32 reports whether it has converted src, which it never does where
// there is no assembly.
func vectorToF32(dst, src []byte, from DType, stream bool) bool { return false }

// vectorFromF32 is the inverse of vectorToF32.
func vectorFromF32(dst []byte, to DType, src []byte, stream bool) bool { return false }
