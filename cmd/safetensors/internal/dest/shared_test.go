package dest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/stretchr/testify/require"
)

// TestNamed has errors about temporary files, which become errors about the files that get their contents, and others,
// which stay.
func TestNamed(t *testing.T) {
	full := func(path string) error { return &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC} }
	linked := &os.LinkError{Op: "link", Old: "temp", New: "x", Err: syscall.EPERM}
	require.Equal(t, full("x"), named("x", full("temp"), "temp"))
	require.Equal(t, full("other"), named("x", full("other"), "temp"))
	require.Equal(t, &fs.PathError{Op: "link", Path: "x", Err: syscall.EPERM}, named("x", linked, "temp"))
	require.Equal(t, linked, named("x", linked, "other"))
	require.NoError(t, named("x", nil, "temp"))
}

// TestNamedOnce writes a shard where a folder has its name. The error contains this name once, and no temporary name.
func TestNamedOnce(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "x")
	require.NoError(t, os.MkdirAll(filepath.Join(taken, "below"), 0o777))
	one, err := safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1})
	require.NoError(t, err)
	err = folder{name: dir}.WriteShard("x", Shard{Tensors: map[string]safetensors.Tensor{"y": one}}, nil, nil)
	require.ErrorAs(t, err, new(*fs.PathError))
	require.Equal(t, 1, strings.Count(err.Error(), taken), err)
	require.NotContains(t, err.Error(), ".tmp")
}

// TestStart compares Start with the start of the file that WriteShard writes, whose header may fit the alignment already.
func TestStart(t *testing.T) {
	for kind, to := range folders(t, 0) {
		for _, align := range []int{0, 1, 8, 16, 128, 512, 1 << 16} {
			if plain, ok := to.(folder); ok {
				to = must(Aligned(plain, align)).(Shared)
			}
			for n := range 20 {
				tensors := checkpoint("x", strings.Repeat("y", 16*n+1))
				metadata := map[string]string{"format": "pt"}
				require.NoError(t, to.WriteShard("x.safetensors", Shard{Tensors: tensors}, metadata, nil))
				file := must(to.Read("x.safetensors", 1<<20))
				start, h, err := to.Start(tensors, metadata)
				require.NoError(t, err)
				require.Equal(t, file[:len(file)-int(numbers.Bytes(tensors))], start, "%s, %d", kind, align)
				require.Equal(t, metadata, h.Metadata)
				require.Len(t, h.Tensors, 2)
			}
		}
		_, _, err := to.Start(map[string]safetensors.Tensor{"\xff": {}}, nil)
		require.Error(t, err)
	}
}
