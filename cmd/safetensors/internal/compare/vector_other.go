//go:build purego || !amd64

package compare

import "github.com/gosafetensors/safetensors"

const vectors = false

func squaresBF16(data []byte) float64 { return plainSquaresBF16(data) }

func squaresF32(data []byte) float64 { return plainSquaresF32(data) }

// differ is not called, because there is no assembly for this platform.
func differ(dtype safetensors.DType, a, b []byte) (d Difference, ok bool) { return d, false }
