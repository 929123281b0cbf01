package variant_test

import (
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/stretchr/testify/require"
)

// TestOfLibrary: the files of a library are told apart from those of another one only if the library opens one of them, by its
// stem and its ending.
func TestOfLibrary(t *testing.T) {
	for names, want := range map[string]string{
		"":                                    "",
		"d.safetensors":                       "",
		"m.safetensors":                       "",
		"d.safetensors x.safetensors m.json":  "",
		"d.safetensors m.safetensors":         "d.safetensors",
		"d.fp16.safetensors m.safetensors":    "",
		"d.bin d.fp16.bin m.fp16.safetensors": "d.bin d.fp16.bin",
		"d-00001-of-00002.safetensors m.bin":  "",
		"d.pt d.ckpt d.pth m.safetensors":     "",
		"d.safetensors.index.json d-00001-of-00002.safetensors d.safetensors.index.fp16.json m.pt d.txt": "d.safetensors.index.json d-00001-of-00002.safetensors d.safetensors.index.fp16.json",
	} {
		require.Equal(t, strings.Fields(want), append([]string{}, variant.OfLibrary(strings.Fields(names), []string{"d"}, []string{"m", "n"})...), names)
	}
}

// TestOfVariant: the files of a variant are those with weights, and their indexes.
func TestOfVariant(t *testing.T) {
	names := strings.Fields("x.safetensors x.fp16.safetensors x.fp16-00001-of-00002.bin x.safetensors.index.fp16.json x.fp16.json x.bf16.bin")
	require.Equal(t, names[1:4], variant.OfVariant(names, "fp16"))
	require.Empty(t, variant.OfVariant(names, "fp32"))
}
