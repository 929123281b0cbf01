package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
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

func newOpener(t *testing.T) *Opener {
	return &Opener{Session: storage.Session{Context: t.Context()}}
}

func writeModel(t *testing.T) (name string, size int64) {
	x := must(safetensors.NewTensor(safetensors.F32, []int{1 << 20}, make([]float32, 1<<20)))
	name = filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, safetensors.WriteFile(name, map[string]safetensors.Tensor{"x": x}, nil))
	return name, x.Size()
}

// TestEmptyFolder: the error names the folder, and not as the file system in it does, even if the
// name of a file starts with it.
func TestEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	require.EqualError(t, errorOf(newOpener(t).Open(dir)), storage.Shown(dir)+": no .safetensors file in it: it is empty")

	t.Chdir(dir)
	require.NoError(t, os.Mkdir("model", 0o777))
	require.NoError(t, os.WriteFile("model/model.safetensors.index.json", []byte(`{"weight_map":{"x":"x.safetensors"}}`), 0o666))
	for _, name := range []string{"model", "model/", "model/model.safetensors.index.json"} {
		require.ErrorContains(t, errorOf(newOpener(t).Open(name)), "model.safetensors.index.json: shard")
		require.Contains(t, errorOf(newOpener(t).Open(name)).Error(), storage.Shown(name)+": ")
	}
}

// TestCounts requires that each byte of a copy is counted once.
func TestCounts(t *testing.T) {
	name, size := writeModel(t)
	for _, src := range []string{name, filepath.Dir(name), "file://" + filepath.ToSlash(name), "file://" + filepath.ToSlash(filepath.Dir(name))} {
		o := newOpener(t)
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
		o := &Opener{Session: storage.Session{Context: ctx}}
		c := must(o.Open(src))
		cancel(stopped)
		require.ErrorIs(t, safetensors.Write(io.Discard, c.Tensors, nil), stopped, src)
		dst := filepath.Join(t.TempDir(), "copy.safetensors")
		require.ErrorIs(t, safetensors.WriteFile(dst, c.Tensors, nil), stopped, src)
		require.Empty(t, must(os.ReadDir(filepath.Dir(dst))))
		require.ErrorIs(t, errorOf(o.Open(src)), stopped)
		require.NoError(t, c.Close())
	}
}

// TestAbandoned requires that an opening that computes without reading does not keep the command.
func TestAbandoned(t *testing.T) {
	defer func(saved []*format.Format) { format.Table = saved }(format.Table)
	stopped, busy, ended := errors.New("stopped"), make(chan bool), make(chan bool)
	ctx, cancel := context.WithCancelCause(t.Context())
	format.Table = []*format.Format{{
		Name: "slow", Endings: []string{".slow"}, Recognizes: func(io.ReaderAt, int64) bool { return true },
		Open: func(io.ReaderAt, int64, string) (*format.Contents, error) {
			defer close(ended)
			cancel(stopped)
			<-busy
			return &format.Contents{}, nil
		},
	}}
	name := filepath.Join(t.TempDir(), "x.slow")
	require.NoError(t, os.WriteFile(name, []byte("slow"), 0o666))
	require.ErrorIs(t, errorOf((&Opener{Session: storage.Session{Context: ctx}}).Open(name)), stopped)
	close(busy)
	<-ended
}

// TestSpool requires that a stream leaves no temporary file behind, whether it ends,
// breaks or is waited for in vain.
func TestSpool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TMP", os.Getenv("TMPDIR"))
	left := func() int { return len(must(os.ReadDir(os.TempDir()))) }
	name, size := writeModel(t)
	data := must(os.ReadFile(name))

	c := must((&Opener{Session: storage.Session{Context: t.Context()}, Stdin: bytes.NewBuffer(data)}).Open("-"))
	require.Equal(t, size, c.Size())
	if runtime.GOOS != "windows" { // where an open file keeps its name
		require.Zero(t, left(), "a command that is killed leaves nothing")
	}
	require.NoError(t, c.Close())
	require.Zero(t, left())

	require.ErrorIs(t, errorOf((&Opener{Session: storage.Session{Context: t.Context()}, Stdin: bytes.NewBuffer(data[:100])}).Open("-")), io.ErrUnexpectedEOF)
	require.Zero(t, left())

	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	defer w.Close()
	go cancel(os.ErrDeadlineExceeded)
	require.ErrorIs(t, errorOf((&Opener{Session: storage.Session{Context: ctx}, Stdin: r}).Open("-")), os.ErrDeadlineExceeded)
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
		c := must(newOpener(t).Open(name))
		require.Equal(t, f.want, opened, "%s %.3q", f.name, f.content)
		if f.want != "" {
			require.Equal(t, []string{"a", "b"}, c.Order)
			require.Equal(t, map[string]string{"k": "v"}, c.Metadata)
		}
		require.NoError(t, c.Close())
	}
}

// TestPinsOfURL: a file is pinned by the answer that opened it, whatever failed before, and
// wherever it came from.
func TestPinsOfURL(t *testing.T) {
	model, _ := writeModel(t)
	info := must(os.Stat(model))
	var mu sync.Mutex
	asked := make(map[string]bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		again := asked[r.Method+r.URL.Path]
		asked[r.Method+r.URL.Path] = true
		mu.Unlock()
		switch {
		case !again:
			w.Header().Set("ETag", `"wrong"`)
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/x.safetensors":
			http.Redirect(w, r, "/there?signature", http.StatusFound)
		case r.URL.Path == "/there":
			w.Header().Set("ETag", `"tag"`)
			f, err := os.Open(model)
			if err == nil {
				defer f.Close()
				http.ServeContent(w, r, "", time.Unix(1, 0), f)
			}
		default:
			http.ServeContent(w, r, "", time.Unix(1, 0), strings.NewReader(`{"weight_map":{"x":"x.safetensors"}}`))
		}
	}))
	t.Cleanup(server.Close)
	pin := storage.Pin{Name: "x.safetensors", Size: info.Size(), Tag: `"tag"`}
	for name, want := range map[string][]storage.Pin{
		"x.safetensors":                 {pin},
		"model.index.json":              {{Name: "model.index.json", Size: 36, Tag: "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
		"m.safetensors.index.fp16.json": {{Name: "m.safetensors.index.fp16.json", Size: 36, Tag: "Thu, 01 Jan 1970 00:00:01 GMT"}, pin},
	} {
		mu.Lock()
		clear(asked)
		mu.Unlock()
		c := must(newOpener(t).Open(server.URL + "/" + name))
		defer c.Close()
		require.Equal(t, want, must(c.Pins()))
	}
}

// TestNoteLeftOut notes ten entries that are left out, and counts the others.
func TestNoteLeftOut(t *testing.T) {
	c := &Checkpoint{Name: "x.pt", Contents: format.Contents{Refused: map[string]error{"a": errors.New("it is an object")}}}
	for n, last := range map[int]string{10: "x.pt: a is left out: it is an object", 11: "x.pt: 1 more entry is left out", 12: "x.pt: 2 more entries are left out"} {
		var notes []string
		o := &Opener{Note: func(text string) { notes = append(notes, text) }}
		o.noteLeftOut(c, slices.Repeat([]string{"a"}, n))
		require.Len(t, notes, min(n, 11))
		require.Equal(t, last, notes[len(notes)-1])
	}
}
