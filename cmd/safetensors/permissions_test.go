package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInPlaceError: an error about a permission says which one is needed, and other errors are unchanged.
func TestInPlaceError(t *testing.T) {
	require.NoError(t, inPlaceError(nil))
	require.Equal(t, io.EOF, inPlaceError(io.EOF))
	err := inPlaceError(&fs.PathError{Op: "create", Path: "x.safetensors", Err: fs.ErrPermission})
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, "create x.safetensors: ")
	require.ErrorContains(t, err, ": --in-place writes a new file into the folder")
}

// TestInPlaceReadOnly: meta --in-place in a folder without the permission to write fails with advice.
func TestInPlaceReadOnly(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() <= 0 {
		t.Skip("the permissions of a folder do not keep this user from writing")
	}
	dir := t.TempDir()
	model := must(os.ReadFile(filepath.Join(repository, "testdata", "model.safetensors")))
	name := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.WriteFile(name, model, 0o666))
	require.NoError(t, os.Chmod(dir, 0o555))
	defer os.Chmod(dir, 0o777)
	require.Contains(t, fails(t, 1, "meta", name, "a=b", "--in-place"), "cp --meta writes a copy elsewhere")
}

// TestCheckUnlisted: check refuses a folder that it cannot list, and goes on.
func TestCheckUnlisted(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() <= 0 {
		t.Skip("the permissions of a folder do not keep this user from reading")
	}
	model := must(filepath.Abs(filepath.Join(repository, "testdata", "model.safetensors")))
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Join("in", "closed"), 0o777))
	succeeds(t, "cp", model, "in/x.safetensors")
	require.NoError(t, os.Chmod(filepath.Join("in", "closed"), 0))
	defer os.Chmod(filepath.Join("in", "closed"), 0o777)
	r := runs(t, "check", "in")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "refused  in/closed: ")
	require.Contains(t, r.stdout, "ok       in/x.safetensors: ")
	require.Equal(t, "safetensors: note: in: in/closed was not read, so that there are no findings about the folder\n", r.stderr)

	r = runs(t, "check", "in/closed")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "refused  in/closed: ")
	require.Empty(t, r.stderr)
}
