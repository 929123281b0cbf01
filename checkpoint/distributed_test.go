package checkpoint_test

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/stretchr/testify/require"
)

// TestBesideDistributed: this package reads the checkpoint of torch.distributed.checkpoint in a directory, other libraries
// the safetensors file beside it. Check finds it if the two are not the same model.
func TestBesideDistributed(t *testing.T) {
	const one = "../dcp/testdata/distcp/one"
	saved := must(dcp.Open(one))
	defer saved.Close()
	tensors := maps.Collect(saved.Tensors())
	var name string
	for name = range tensors {
		break
	}
	zeros := func(x safetensors.Tensor) safetensors.Tensor {
		return must(safetensors.NewTensor(x.DType(), x.Shape(), make([]byte, x.Size())))
	}
	with := func(changed map[string]safetensors.Tensor) map[string]safetensors.Tensor {
		all := maps.Clone(tensors)
		maps.Copy(all, changed)
		return all
	}
	part := make(map[string]safetensors.Tensor) // a model that the job saved as a part of its state
	for name, x := range tensors {
		if inside, ok := strings.CutPrefix(name, "model."); ok {
			part[inside] = x
		}
	}
	require.NotEmpty(t, part)
	for want, model := range map[string]map[string]safetensors.Tensor{
		" ": part,
		"":  tensors, "its data differ": with(map[string]safetensors.Tensor{name: zeros(tensors[name])}),
		"only the second has it": with(map[string]safetensors.Tensor{"more": tensors[name]}),
	} {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(one)))
		require.NoError(t, safetensors.WriteFile(dir+"/model.safetensors", model, nil))
		findings := must(checkpoint.Check(os.DirFS(dir), "."))
		if strings.TrimSpace(want) == "" {
			require.Empty(t, findings)
			continue
		}
		require.Len(t, findings, 1)
		require.Equal(t, checkpoint.Ambiguous, findings[0].Rule)
		require.Contains(t, findings[0].Text, want)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
