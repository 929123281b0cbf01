package testplatform

import (
	"os"
	"testing"
)

// Long reports whether tests are to take the largest sizes and all of their rounds,
// which .ci/run long does with SAFETENSORS_LONG=1. It runs those whose own text calls
// Long: a test does not call it by way of another function.
func Long() bool { return os.Getenv("SAFETENSORS_LONG") == "1" && !testing.Short() }
