package quant_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// TestOpen opens folders and files with each kind of config.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		vector, file string
		more         map[string]string
	}{
		{"gpt-oss", "config.json", nil},
		{"modelopt-nvfp4-file", "hf_quant_config.json", map[string]string{"config.json": `{"model_type":"llama"}`}},
		{"fp8-block-128", "", nil}, // names and dtypes alone decide
	} {
		v := readVector(t, filepath.Join("testdata", c.vector+".safetensors"))
		folder := t.TempDir()
		file := filepath.Join(folder, "model.safetensors")
		require.NoError(t, safetensors.WriteFile(file, v.tensors, map[string]string{"format": "pt"}))
		for name, text := range c.more {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o666))
		}
		if c.file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(folder, c.file), v.config, 0o666))
		}
		for _, name := range []string{folder, file} {
			f, err := quant.Open(name)
			require.NoError(t, err)
			require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
			for name, want := range v.want {
				x, err := f.Tensor(name)
				require.NoError(t, err)
				got, err := safetensors.Append[float32](nil, x)
				require.NoError(t, err)
				requireSame(t, want, got, name)
				require.NoError(t, f.Close())
				_, err = safetensors.Append[float32](nil, x)
				require.ErrorIs(t, err, fs.ErrClosed)
			}
		}
	}
}

func TestOpenErrors(t *testing.T) {
	folder := t.TempDir()
	_, err := quant.Open(folder)
	require.ErrorIs(t, err, fs.ErrNotExist)

	v := readVector(t, "testdata/gpt-oss.safetensors")
	require.NoError(t, safetensors.WriteFile(filepath.Join(folder, "model.safetensors"), v.tensors, nil))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte("{"), 0o666))
	_, err = quant.Open(folder)
	require.EqualError(t, err, "safetensors: the config: unexpected end of JSON input")
}
