package main

import (
	"archive/tar"
	"compress/bzip2"
	"io"
	"os"
	"path/filepath"
	"testing"

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
