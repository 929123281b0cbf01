package format

import (
	"archive/zip"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func named(t *testing.T, name string) *Format {
	for _, f := range Table {
		if f.Name == name {
			return f
		}
	}
	require.Fail(t, "no such format", name)
	return nil
}

// archive returns a zip archive with one member.
func archive(t *testing.T, member string) string {
	t.Helper()
	var data bytes.Buffer
	w := zip.NewWriter(&data)
	_, err := w.CreateHeader(&zip.FileHeader{Name: member})
	require.NoError(t, errors.Join(err, w.Close()))
	return data.String()
}

// TestOf: the content of a file determines its format. If no format recognizes it, the name does, if files of that format can be
// opened.
func TestOf(t *testing.T) {
	for _, c := range []struct{ content, name, want string }{
		{"\x02\x00\x00\x00\x00\x00\x00\x00{}", "x.npz", "safetensors file"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00\n", "x.npz", "safetensors file"},
		{"\xff\xff\xff\x07\x00\x00\x00\x00{", "x.npz", "safetensors file"}, // 2^27 - 1
		{"\xff\xff\xff\x08\x00\x00\x00\x00{", "x.npz", "NumPy archive"},
		{"\x02\x00\x00\x00\x01\x00\x00\x00{", "x.npz", "NumPy archive"},
		{"\x02\x00\x00\x00\x00\x00\x00\x01{", "x.npz", "NumPy archive"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00}", "x.npz", "NumPy archive"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00", "x.npz", "NumPy archive"},
		{"\x93NUMPY\x01\x00", "x.safetensors", "NumPy array"},
		{"\x93NUMPY", "x.safetensors", "NumPy array"},
		{"\x93NUMP", "x.safetensors", "safetensors file"},
		{"\x93NUMPX", "x.safetensors", "safetensors file"},
		{"\x80\x01", "x.safetensors", "safetensors file"},
		{"\x80\x02", "x.safetensors", "PyTorch file"},
		{"\x80\x05", "x.safetensors", "PyTorch file"},
		{"\x80\x06", "x.safetensors", "safetensors file"},
		{"\x7f\x02", "x.safetensors", "safetensors file"},
		{"\x80", "x.safetensors", "safetensors file"},
		{archive(t, "archive/data.pkl"), "x.safetensors", "PyTorch file"},
		{archive(t, "x.npy"), "x.safetensors", "NumPy archive"},
		{archive(t, "x"), "x.safetensors", "safetensors file"},
		{archive(t, "x"), "x.PT", "PyTorch file"},
		{"", "x.npz", "NumPy archive"},
		{"", "x.npy", "NumPy array"},
		{"", "x.bt", "bintensors file"},
		{"", "x.gguf", "safetensors file"}, // files of that format cannot be opened
		{"", "x.json", "safetensors file"},
		{"", "x", "safetensors file"},
		{"", "", "safetensors file"},
	} {
		got, err := Of(strings.NewReader(c.content), int64(len(c.content)), c.name)
		require.NoError(t, err)
		require.Equal(t, c.want, got.Name, "%.20q %s", c.content, c.name)
		require.Same(t, named(t, c.want), got)
	}
	require.Nil(t, ByName("x"))
	require.Nil(t, ByName("npz"))
	require.Equal(t, "NumPy archive", ByName("dir.pt/X.NPZ").Name)
	require.Equal(t, ".safetensors, .npz or .bt", Written())
}

// A failingAt fails to read beyond a number of bytes.
type failingAt struct {
	*strings.Reader
	good int64
}

var errBroken = errors.New("broken")

func (f failingAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.good {
		return 0, errBroken
	}
	return f.Reader.ReadAt(p, off)
}

// TestOfFails: a file whose content cannot be read has no format, also if only a later read fails. The end of a file is not an error.
func TestOfFails(t *testing.T) {
	for _, content := range []string{"\x02\x00\x00\x00\x00\x00\x00\x00{}", archive(t, "archive/data.pkl"), "something else"} {
		for good := range int64(9) {
			_, err := Of(failingAt{strings.NewReader(content), good}, int64(len(content)), "x.pt")
			require.ErrorIs(t, err, errBroken, "%.10q %d", content, good)
		}
	}
	_, err := Of(failingAt{strings.NewReader(archive(t, "x")), 9}, int64(len(archive(t, "x"))), "x.pt")
	require.ErrorIs(t, err, errBroken, "the directory of an archive")
	is, err := Of(strings.NewReader("{}"), 100, "x.pt") // the file has become shorter
	require.NoError(t, err)
	require.Same(t, Torch, is)
}
