package variant

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIsState tries the names that transformers and accelerate give to the state of a job, and
// similar names.
func TestIsState(t *testing.T) {
	for _, name := range []string{
		"training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt", "optimizer.bin", "optimizer_1.bin", "scheduler.bin",
		"sampler.bin", "sampler_2.bin", "dl_state_dict.bin", "rng_state.pth", "rng_state_12.pth",
	} {
		require.True(t, IsState(name), name)
	}
	for _, name := range []string{
		"", "pytorch_model.bin", "model.pt", "optimizer.pth", "optimizer", "optimizer_x.bin", "my_optimizer.pt", "optimizer.pt.bin",
		"training_args.bin.index.json", "optimizer_0.pt", "optimizer.safetensors", "Optimizer.pt",
	} {
		require.False(t, IsState(name), name)
	}
}
