//go:build !race

package safetensors

// raceEnabled is whether the race detector runs, which is slow and allocates.
const raceEnabled = false
