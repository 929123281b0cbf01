package osfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMkdirAll(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a", "b/c/d", "b/c/d/", "b/e", ".", filepath.Join(t.TempDir(), "x", "y")} {
		for range 2 { // the second finds it
			require.NoError(t, MkdirAll(filepath.FromSlash(name)))
			require.DirExists(t, name)
		}
	}
	require.NoError(t, os.WriteFile("file", nil, 0o666))
	for _, name := range []string{"file", "file/a", "file/a/b"} {
		var path *fs.PathError
		require.ErrorAs(t, MkdirAll(filepath.FromSlash(name)), &path)
		require.Contains(t, path.Path, "file")
	}
}

// A refusingSystem cannot open folders.
type refusingSystem struct{ System }

func (refusingSystem) OpenDir(string) (Folder, error) { return nil, fs.ErrPermission }

// TestMkdirAllUnflushed: a folder whose name cannot be flushed is removed again.
func TestMkdirAllUnflushed(t *testing.T) {
	dir := t.TempDir()
	defer Wrap(func(s System) System { return refusingSystem{s} })()
	require.ErrorIs(t, MkdirAll(filepath.Join(dir, "a", "b")), fs.ErrPermission)
	requireOnly(t, dir)
}
