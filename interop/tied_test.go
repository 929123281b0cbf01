package interop_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestTieAsSaveModel compares Tie and Untie with safetensors.torch: from the names
// of a model, Tie makes the very file that save_model wrote, and Untie finds all
// names in it. testdata/tied/generate.py makes the files, and checks with load_model
// that PyTorch reads them.
func TestTieAsSaveModel(t *testing.T) {
	text, err := os.ReadFile("../testdata/tied/state.json")
	require.NoError(t, err)
	var models map[string]map[string]string // names of tensors to the names that save_model kept
	require.NoError(t, json.Unmarshal(text, &models))
	require.Len(t, models, 2)
	for model, names := range models {
		want, err := os.ReadFile("../testdata/tied/" + model + ".safetensors")
		require.NoError(t, err)
		f, err := safetensors.Parse(want)
		require.NoError(t, err)

		all := safetensors.Untie(maps.Collect(f.Tensors()), f.Metadata())
		require.Equal(t, slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(all)), model)
		for name, kept := range names {
			same, err := f.Tensor(kept)
			require.NoError(t, err)
			require.Equal(t, same, all[name], name)
		}

		tied, metadata := safetensors.Tie(all, map[string]string{"format": "pt"})
		var got bytes.Buffer
		require.NoError(t, safetensors.Write(&got, tied, metadata))
		require.Equal(t, want, got.Bytes(), model)
	}
}
