//go:build purego || !amd64

package compare

import "github.com/gosafetensors/safetensors"

// vectors reports whether this platform has the differ func.
const vectors = false

func squaresBF16(data []byte) float64 { return plainSquaresBF16(data) }

func squaresF32(data []byte) float64 { return plainSquaresF32(data) }

// differ compares nothing and returns false. Where vectors is false, nobody calls it.
func differ(dtype safetensors.DType, a, b []byte) (d Difference, ok bool) { return d, false }
