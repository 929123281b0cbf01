package localfile

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadNamed: a file of just the limit is read, one byte more is refused, and errors name the
// file.
func TestReadNamed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("data"), 0o666))
	data, err := ReadNamed(t.Context(), name, 4)
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	_, err = ReadNamed(t.Context(), name, 3)
	require.ErrorContains(t, err, "file: more than 3 bytes")
	_, err = ReadNamed(t.Context(), name+"x", 3)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestPipe: a pipe that nobody writes to is waited for until the context ends. The goroutine that waits goes on, so
// that the pipe with data is another one: the writer would meet either reader.
func TestPipe(t *testing.T) {
	mkfifo, err := exec.LookPath("mkfifo")
	if err != nil {
		t.Skip("no mkfifo")
	}
	dir := t.TempDir()
	silent, written := filepath.Join(dir, "silent"), filepath.Join(dir, "written")
	require.NoError(t, exec.Command(mkfifo, silent, written).Run())
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(os.ErrDeadlineExceeded)
	_, err = ReadNamed(ctx, silent, 1)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	go os.WriteFile(written, []byte("data"), 0o666)
	data, err := ReadNamed(t.Context(), written, 4)
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
}

// TestAwaitEnds: the work may end just when the context does. The race detector sees it.
func TestAwaitEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	n, err := Await(ctx, func() (int, error) { <-ctx.Done(); return 1, nil })
	if err != nil {
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, n)
	}
}

// TestPath: file:// URLs become paths, other names stay, and URLs of other hosts are refused.
func TestPath(t *testing.T) {
	dir := t.TempDir()
	url := "file://" + filepath.ToSlash(dir)
	for name, want := range map[string]string{
		url + "/model": filepath.Join(dir, "model"), url + "/a%20b%3F": filepath.Join(dir, "a b?"),
		"model": "model", "s3://models/x?a=b": "s3://models/x?a=b", "-": "-", "": "",
	} {
		path, err := Path(name)
		require.NoError(t, err, name)
		require.Equal(t, want, path)
	}
	for name, want := range map[string]string{
		"file://host/x": "another host", "file:///x?create_dir=true": "no query", "file:///x#y": "no query",
		"file:///": "names no file", "file://": "names no file", "file://%zz": "not a URL",
	} {
		_, err := Path(name)
		require.ErrorContains(t, err, want)
	}
}
