package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func errorOf[T any](_ T, err error) error { return err }

func TestSplitHub(t *testing.T) {
	for name, want := range map[string][3]string{
		"hf://o/n":                          {"o/n", "", ""},
		"hf://o/n/":                         {"o/n", "", ""},
		"hf://o/n@v1":                       {"o/n", "v1", ""},
		"hf://o/n@v1/unet/x.safetensors":    {"o/n", "v1", "unet/x.safetensors"},
		"hf://o/n@a%2Fb/x.safetensors":      {"o/n", "a/b", "x.safetensors"},
		"hf://o/n@refs/pr/1/x.safetensors":  {"o/n", "refs/pr/1", "x.safetensors"},
		"hf://o/n@refs/convert/parquet":     {"o/n", "refs/convert/parquet", ""},
		"hf://o/n/model.safetensors":        {"o/n", "", "model.safetensors"},
		"hf://o/n.v2@main/folder/of/models": {"o/n.v2", "main", "folder/of/models"},
	} {
		repo, revision, file, err := SplitHub(name)
		require.NoError(t, err, name)
		require.Equal(t, want, [3]string{repo, revision, file}, name)
	}
	for _, name := range []string{"hf://", "hf://o", "hf://o/", "hf:///n", "hf://o/n/../../x", "hf://o/n@refs/heads/main", "hf://o/n@refs"} {
		_, _, _, err := SplitHub(name)
		require.Error(t, err, name)
	}
}

func TestShown(t *testing.T) {
	for name, want := range map[string]string{
		"https://user:secret@host/x.safetensors": "https://host/x.safetensors",
		"https://host/x.safetensors?sig=secret":  "https://host/x.safetensors",
		"s3://bucket?key=secret":                 "s3://bucket",
		"hf://owner/name@v2/x":                   "hf://owner/name@v2/x",
		"folder/what?.safetensors":               "folder/what?.safetensors",
		"\x1b":                                   `"\x1b"`,
		"-":                                      "-",
	} {
		require.Equal(t, want, Shown(name))
	}
}
