package osfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireOnly checks which names a folder holds.
func requireOnly(t *testing.T, dir string, want ...string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.ElementsMatch(t, want, names)
}

func TestAtomicTakesItsNameAtCommit(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	a, err := Create(name)
	require.NoError(t, err)
	require.NoError(t, a.Reserve(3))
	_, err = a.WriteAt([]byte("new"), 0)
	require.NoError(t, err)
	require.NoFileExists(t, name)
	require.NoError(t, a.Finish())
	require.NoFileExists(t, name)
	require.NoError(t, a.Commit())
	a.Abort() // too late to do anything
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	requireOnly(t, dir, "file")
}

func TestAbortRemovesTheTemporaryFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o666))
	for _, finish := range []bool{false, true} {
		a, err := Create(name)
		require.NoError(t, err)
		_, err = a.WriteAt([]byte("new"), 0)
		require.NoError(t, err)
		if finish {
			require.NoError(t, a.Finish())
		}
		a.Abort()
		a.Abort()
		requireOnly(t, dir, "file")
	}
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "old", string(data))
}

func TestErrorsNameTheTarget(t *testing.T) {
	name := filepath.Join(t.TempDir(), "missing", "file")
	_, err := Create(name)
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	require.Equal(t, name, path.Path)
	require.ErrorIs(t, err, fs.ErrNotExist)

	name = filepath.Join(t.TempDir(), "file")
	a, err := Create(name)
	require.NoError(t, err)
	defer a.Abort()
	require.NoError(t, a.Finish())
	_, err = a.WriteAt([]byte("late"), 0)
	require.ErrorAs(t, err, &path)
	require.Equal(t, name, path.Path)
	require.ErrorIs(t, err, os.ErrClosed)
	for _, err := range []error{a.Reserve(1), a.Finish()} {
		require.ErrorAs(t, err, &path)
		require.Equal(t, name, path.Path)
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	_, err := Create(dir)
	require.ErrorContains(t, err, "is a directory")
	_, _, err = OpenRegular(dir)
	require.ErrorContains(t, err, "is a directory")
	_, _, err = OpenRegular(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	if runtime.GOOS == "linux" {
		_, _, err = OpenRegular("/dev/zero")
		require.ErrorContains(t, err, "is a device")
	}
	name := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(name, []byte("data"), 0o666))
	f, size, err := OpenRegular(name)
	require.NoError(t, err)
	require.EqualValues(t, 4, size)
	require.NoError(t, f.Close())
}

func TestSyncDirOfAMissingFolder(t *testing.T) {
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1":
		require.NoError(t, SyncDir(t.TempDir()))
		return
	}
	require.NoError(t, SyncDir(t.TempDir()))
	require.True(t, errors.Is(SyncDir(filepath.Join(t.TempDir(), "missing")), fs.ErrNotExist))
}
