package main

import (
	"archive/tar"
	"compress/bzip2"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// prepareRanks unpacks the folders of rank files that package dcp is tested with: joined/NAME, each beside
// NAME.safetensors with its whole tensors, and refused/NAME.
func prepareRanks(t *testing.T, dir string) []string {
	packed := must(os.Open(filepath.Join(repository, "dcp", "testdata", "ranks", "cases.tar.bz2")))
	defer packed.Close()
	all := filepath.Join(dir, "all")
	for r := tar.NewReader(bzip2.NewReader(packed)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			name := filepath.Join(all, filepath.FromSlash(h.Name))
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
			require.NoError(t, os.WriteFile(name, must(io.ReadAll(r)), 0o666))
		}
	}
	for _, kind := range []string{"joined", "refused"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, kind), 0o777))
	}
	for _, e := range must(os.ReadDir(all)) {
		kind, expected := "refused", filepath.Join(all, e.Name(), "expected.safetensors")
		if _, err := os.Stat(expected); err == nil {
			kind = "joined"
			require.NoError(t, os.Rename(expected, filepath.Join(dir, kind, e.Name()+".safetensors")))
		}
		require.NoError(t, os.Rename(filepath.Join(all, e.Name(), "ranks"), filepath.Join(dir, kind, e.Name())))
	}
	return nil
}

// TestRanksOtherNames: the files of ranks give the same other names of tied tensors as a file with their metadata.
func TestRanksOtherNames(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := map[string]safetensors.Tensor{"a": counting(t, 4, 2), "b": counting(t, 3)}
	require.NoError(t, safetensors.WriteFile("tied.safetensors", tensors, map[string]string{"format": "pt", "tied": "a"}))
	tensors["tied"] = tensors["a"]
	require.NoError(t, safetensors.WriteFile("both.safetensors", tensors, nil))
	require.NoError(t, os.WriteFile("sums", []byte(succeeds(t, "hash", "--tensors", "both.safetensors")), 0o666))
	succeeds(t, "cp", "tied.safetensors", "ranks", "--ranks", "2")
	for _, name := range []string{"tied.safetensors", "ranks"} {
		require.Equal(t, "equal\n", succeeds(t, "diff", "both.safetensors", name))
		require.Contains(t, succeeds(t, "show", name, "tied"), "[6 7]")
		require.Contains(t, succeeds(t, "verify", "--tensors", name, "sums"), "tied: OK")
		succeeds(t, "cp", name, "untied.npz", "--force")
		require.Equal(t, "equal\n", succeeds(t, "diff", "both.safetensors", "untied.npz"))
		succeeds(t, "cp", name, "renamed.safetensors", "--rename", "s/^/model./", "--force")
		require.Contains(t, succeeds(t, "meta", "renamed.safetensors"), "model.tied  model.a")
	}
}
