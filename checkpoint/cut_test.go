package checkpoint_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestCutFile: a file that is cut short is a FormatError that wraps io.ErrUnexpectedEOF, in either format, on this
// machine and in a file system.
func TestCutFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"x.safetensors": weights(t, map[string]float32{"w": 1}), "pytorch_model.bin": torchFile(t, map[string]float32{"w": 1})} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text[:len(text)-3]), 0o666))
		_, local := checkpoint.Open(filepath.Join(dir, name))
		_, inFS := checkpoint.OpenFS(os.DirFS(dir), name)
		for _, err := range []error{local, inFS} {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
			require.ErrorAs(t, err, new(*safetensors.FormatError))
		}
	}
}

// TestMetadataOfRanks: Open and Check take a directory with a .metadata of each rank for a distributed checkpoint, and
// agree on what is missing from it.
func TestMetadataOfRanks(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../dcp/testdata/distcp/alone")))
	f, err := checkpoint.Open(dir)
	require.NoError(t, err)
	require.Equal(t, 8, f.Len())
	require.NoError(t, f.Close())
	found, err := checkpoint.Check(os.DirFS(dir), ".")
	require.NoError(t, err)
	require.Empty(t, found)

	missing := func(want string, notExist bool) {
		t.Helper()
		_, err := checkpoint.Open(dir)
		require.ErrorContains(t, err, want)
		require.Equal(t, notExist, errors.Is(err, fs.ErrNotExist))
		found, err := checkpoint.Check(os.DirFS(dir), ".")
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Contains(t, found[0].Text, want)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "__1.metadata")))
	missing(`"__1.metadata" is missing`, false)
	for _, name := range []string{"__0.metadata", "__2.metadata", "__3.metadata"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
	}
	missing("it has .distcp files, but no .metadata", true)
}
