package checkpoint_test

import (
	"archive/tar"
	"compress/bzip2"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// A corpusCase is a row of testdata/folders/cases.json.
type corpusCase struct {
	Name, What, Path, Verdict, Why string

	About []string // a right message names one of these files or tensors
}

// corpus unpacks testdata/folders/cases.tar.bz2 and returns the directory and the cases.
func corpus(t *testing.T) (dir string, cases []corpusCase) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "folders", "cases.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &cases))
	return unpack(t, "folders", "cases.tar.bz2"), cases
}

// unpack unpacks an archive of testdata into a new directory.
func unpack(t *testing.T, names ...string) (dir string) {
	t.Helper()
	packed, err := os.Open(filepath.Join("testdata", filepath.Join(names...)))
	require.NoError(t, err)
	defer packed.Close()
	dir = t.TempDir()
	for r := tar.NewReader(bzip2.NewReader(packed)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		}
		require.NoError(t, err)
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
		switch h.Typeflag {
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(name, data, 0o666))
		case tar.TypeSymlink:
			if runtime.GOOS != "windows" {
				require.NoError(t, os.Symlink(h.Linkname, name))
			}
		case tar.TypeLink:
			require.NoError(t, os.Link(filepath.Join(dir, filepath.FromSlash(h.Linkname)), name))
		}
	}
}

// TestCorpus: a sound folder has no finding, and of a folder that two readers see differently, or
// that nobody can load, one finding names what is wrong.
func TestCorpus(t *testing.T) {
	dir, cases := corpus(t)
	require.GreaterOrEqual(t, len(cases), 120)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(c.Name, "hub-cache") {
				t.Skip("it has links")
			}
			found, err := checkpoint.Check(os.DirFS(filepath.Join(dir, c.Name, filepath.FromSlash(c.Path))), ".")
			require.NoError(t, err, c.What)
			for _, f := range found {
				require.NotEmpty(t, f.Files)
				require.NotEmpty(t, f.Text)
				t.Log(c.Verdict, f)
			}
			switch c.Verdict {
			case "sound":
				require.Empty(t, found, c.What)
			case "differs", "broken":
				require.True(t, slices.ContainsFunc(found, func(f checkpoint.Finding) bool {
					return slices.ContainsFunc(c.About, func(name string) bool { return strings.Contains(f.String(), name) })
				}), "%s: %s; %q", c.What, c.Why, found)
			}
		})
	}
}
