package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func TestSplitHub(t *testing.T) {
	for name, want := range map[string][3]string{
		"hf://o/n":                          {"o/n", "", ""},
		"hf://o/n/":                         {"o/n", "", ""},
		"hf://o/n@v1":                       {"o/n", "v1", ""},
		"hf://o/n@v1/unet/x.safetensors":    {"o/n", "v1", "unet/x.safetensors"},
		"hf://o/n@a%2Fb/x.safetensors":      {"o/n", "a/b", "x.safetensors"},
		"hf://o/n@refs/pr/1/x.safetensors":  {"o/n", "refs/pr/1", "x.safetensors"},
		"hf://o/n@refs/convert/parquet":     {"o/n", "refs/convert/parquet", ""},
		"hf://o/n/model.safetensors":        {"o/n", "", "model.safetensors"},
		"hf://o/n.v2@main/folder/of/models": {"o/n.v2", "main", "folder/of/models"},
	} {
		repo, revision, file, err := splitHub(name)
		require.NoError(t, err, name)
		require.Equal(t, want, [3]string{repo, revision, file}, name)
	}
	for _, name := range []string{"hf://", "hf://o", "hf://o/", "hf:///n", "hf://o/n/../../x", "hf://o/n@refs/heads/main", "hf://o/n@refs"} {
		_, _, _, err := splitHub(name)
		require.Error(t, err, name)
	}
}

func TestShown(t *testing.T) {
	for name, want := range map[string]string{
		"https://user:secret@host/x.safetensors": "https://host/x.safetensors",
		"https://host/x.safetensors?sig=secret":  "https://host/x.safetensors",
		"s3://bucket?key=secret":                 "s3://bucket",
		"hf://owner/name@v2/x":                   "hf://owner/name@v2/x",
		"folder/what?.safetensors":               "folder/what?.safetensors",
		"\x1b":                                   `"\x1b"`,
		"-":                                      "-",
	} {
		require.Equal(t, want, Shown(name))
	}
}

func writeModel(t *testing.T) (name string, size int64) {
	x := must(safetensors.NewTensor(safetensors.F32, []int{1 << 20}, make([]float32, 1<<20)))
	name = filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, safetensors.WriteFile(name, map[string]safetensors.Tensor{"x": x}, nil))
	return name, x.Size()
}

// TestEmptyFolder: the error names the folder, and not as the file system in it does.
func TestEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	require.EqualError(t, errorOf((&Opener{Context: t.Context()}).Open(dir)), Shown(dir)+": no .safetensors file in it, and nothing else: file does not exist")
}

// TestCounts requires that each byte of a copy is counted once.
func TestCounts(t *testing.T) {
	name, size := writeModel(t)
	for _, src := range []string{name, filepath.Dir(name), "file://" + filepath.ToSlash(name), "file://" + filepath.ToSlash(filepath.Dir(name))} {
		o := &Opener{Context: t.Context()}
		c, err := o.Open(src)
		require.NoError(t, err, src)
		before := o.BytesRead()
		require.NoError(t, safetensors.Write(io.Discard, c.Tensors, nil))
		require.Equal(t, size, o.BytesRead()-before, src)
		require.Len(t, c.Files, 1, src)
		require.Equal(t, "model.safetensors", c.Files[0].Name)
		require.NoError(t, c.Close())
	}
}

// TestCancel requires that every read ends with the context.
func TestCancel(t *testing.T) {
	name, _ := writeModel(t)
	stopped := errors.New("stopped")
	for _, src := range []string{name, filepath.Dir(name), "file://" + filepath.ToSlash(name)} {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := &Opener{Context: ctx}
		c := must(o.Open(src))
		cancel(stopped)
		require.ErrorIs(t, safetensors.Write(io.Discard, c.Tensors, nil), stopped, src)
		dst := filepath.Join(t.TempDir(), "copy.safetensors")
		require.ErrorIs(t, safetensors.WriteFile(dst, c.Tensors, nil), stopped, src)
		entries := must(os.ReadDir(filepath.Dir(dst)))
		require.Empty(t, entries)
		require.ErrorIs(t, errorOf(o.Open(src)), stopped)
		require.NoError(t, c.Close())
	}
}

// TestSpool requires that a stream leaves no temporary file behind, whether it ends,
// breaks or is waited for in vain.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR"))
	left := func() int {
		entries := must(os.ReadDir(os.TempDir()))
		return len(entries)
	}
	name, size := writeModel(t)
	data := must(os.ReadFile(name))

	c := must((&Opener{Context: t.Context(), Stdin: bytes.NewBuffer(data)}).Open("-"))
	require.Equal(t, size, c.Size())
	if runtime.GOOS != "windows" { // where an open file keeps its name
		require.Zero(t, left(), "a command that is killed leaves nothing")
	}
	require.NoError(t, c.Close())
	require.Zero(t, left())

	require.ErrorIs(t, errorOf((&Opener{Context: t.Context(), Stdin: bytes.NewBuffer(data[:100])}).Open("-")), io.ErrUnexpectedEOF)
	require.Zero(t, left())

	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	go cancel(os.ErrDeadlineExceeded)
	require.ErrorIs(t, errorOf((&Opener{Context: ctx, Stdin: r}).Open("-")), os.ErrDeadlineExceeded)
	require.Zero(t, left())
}

// TestFormats checks that content counts before the name.
func TestFormats(t *testing.T) {
	defer func(saved []*format.Format) { format.Table = saved }(format.Table)
	opened := ""
	row := func(name, magic string) *format.Format {
		return &format.Format{
			Name: name, Endings: []string{"." + name},
			Recognizes: func(r io.ReaderAt, size int64) bool {
				b := make([]byte, len(magic))
				n, _ := r.ReadAt(b, 0)
				return n == len(b) && string(b) == magic
			},
			Open: func(io.ReaderAt, int64, string) (*format.Contents, error) {
				opened = name
				return &format.Contents{Tensors: map[string]safetensors.Tensor{"b": {}, "a": {}}, Metadata: map[string]string{"k": "v"}}, nil
			},
		}
	}
	format.Table = []*format.Format{format.Safetensors, row("one", "ONE"), row("two", "TWO")}
	dir := t.TempDir()
	model, _ := writeModel(t)
	data := must(os.ReadFile(model))
	for _, f := range []struct{ name, content, want string }{
		{"x.one", "ONE", "one"},
		{"x.safetensors", "TWO", "two"},
		{"x.one", "TWO", "two"},
		{"x.TWO", "???", "two"},
		{"x.two", string(data), ""},
		{"x.two", "\x03\x00\x00\x00\x00\x00\x00\x00\n{}", ""},
	} {
		opened = ""
		name := filepath.Join(dir, f.name)
		require.NoError(t, os.WriteFile(name, []byte(f.content), 0o666))
		c := must((&Opener{Context: t.Context()}).Open(name))
		require.Equal(t, f.want, opened, "%s %.3q", f.name, f.content)
		if f.want != "" {
			require.Equal(t, []string{"a", "b"}, c.Order)
			require.Equal(t, map[string]string{"k": "v"}, c.Metadata)
		}
		require.NoError(t, c.Close())
	}
}
