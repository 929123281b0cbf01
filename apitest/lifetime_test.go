package apitest_test

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOpenErrors checks that errors of Open, Load and OpenFS name the file and the
// package, each once.
func TestOpenErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("digits", []byte("1234"), 0o666))
	require.NoError(t, os.WriteFile("first72", saved(map[string]Tensor{"a": counting(U32, 4)}, nil)[:72], 0o666))
	require.NoError(t, os.Mkdir("folder", 0o777))
	counted, opened := countOpen(os.DirFS("."))
	openFS := func(name string) (*File, error) { return OpenFS(counted, name) }
	type ways = []func(name string) (*File, error)
	byName, bySystem, byBoth := ways{Open, Load}, ways{openFS}, ways{Open, Load, openFS}
	for _, c := range []struct {
		rule, name string
		open       ways
		want       string
		is         error
	}{
		{"a name is not empty", "", byName, "", map[bool]error{true: fs.ErrNotExist}[testplatform.MissesEmptyName]},
		{"a valid path", "../a", bySystem, "invalid argument: a name in an fs.FS is relative to its root", fs.ErrInvalid},
		{"no absolute path", "/a/x.safetensors", bySystem, "", fs.ErrInvalid},
		{"the file exists", "missing", byBoth, "", fs.ErrNotExist},
		{"a file has a header length", "digits", byBoth, "file of 4 bytes is shorter than the 8 bytes of the header length (at byte 0)", nil},
		{"a file holds the data of its tensors", "first72", byBoth, "the data buffer is truncated: the tensors need 16 bytes, the file has 8 (at byte 72)", nil},
		{"a folder holds a .safetensors file", "folder", byBoth, "no .safetensors file in it: it is empty", fs.ErrNotExist},
	} {
		t.Run(c.rule, func(t *testing.T) {
			for _, open := range c.open {
				_, err := open(c.name)
				require.ErrorContains(t, err, "safetensors: open "+c.name+": "+c.want)
				require.Equal(t, 1, strings.Count(strings.ReplaceAll(err.Error(), ".safetensors", ""), "safetensors: "), err)
				var path *fs.PathError
				require.ErrorAs(t, err, &path)
				require.Equal(t, c.name, path.Path)
				if c.name != "" {
					require.Equal(t, 1, strings.Count(err.Error(), c.name), err)
				}
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
			}
		})
	}
	if runtime.GOOS == "linux" {
		require.EqualError(t, errorOf(Open("/dev/zero")), "safetensors: open /dev/zero: is a device")
	}
	require.Zero(t, opened.Load(), "files are left open")
	counted, opened = countOpen(fstest.MapFS{"x": {Mode: fs.ModeDevice}})
	require.EqualError(t, errorOf(openFS("x")), "safetensors: open x: is a device")
	require.Zero(t, opened.Load(), "files are left open")
}

// TestCloseWaits checks that Close waits for a WriteTo in progress, while new
// operations fail at once.
func TestCloseWaits(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(U32, 4), "b": counting(U32, 4, 4)})
	for way, open := range openedBy {
		f := must(open(name))
		a := must(f.Tensor("a"))
		t.Run(way, func(t *testing.T) { requireCloseWaits(t, f, a) })
		f = must(open(name))
		b := must(f.Tensor("b"))
		b = must(must(must(b.Transpose()).Reshape(2, 8)).Slice(All(), Span(2, 4)))
		t.Run(way+" reshaped", func(t *testing.T) { requireCloseWaits(t, f, b) })
	}
}

// requireCloseWaits checks that Close of a file waits for one of its tensors, of 16 bytes.
func requireCloseWaits(t *testing.T, f *File, a Tensor) {
	entered, proceed := make(chan struct{}), make(chan struct{})
	w := writerFunc(func(b []byte) (int, error) {
		entered <- struct{}{}
		<-proceed
		return len(b), nil
	})
	var finished atomic.Int32
	var all sync.WaitGroup
	all.Add(2)
	go func() {
		defer all.Done()
		n, err := a.WriteTo(w)
		finished.Add(1)
		assert.NoError(t, err)
		assert.EqualValues(t, 16, n)
	}()
	<-entered
	go func() {
		defer all.Done()
		err := f.Close()
		finished.Add(1)
		assert.NoError(t, err)
	}()
	// Once Close has started, new operations fail; the one in progress goes on.
	deadline := time.Now().Add(time.Minute)
	var err error
	for err == nil && time.Now().Before(deadline) {
		runtime.Gosched()
		_, err = Append[uint32](nil, a)
	}
	assert.ErrorIs(t, err, fs.ErrClosed)
	for range 1000 {
		runtime.Gosched()
	}
	assert.Zero(t, finished.Load(), "WriteTo and Close both wait")
	close(proceed)
	all.Wait()
	require.EqualValues(t, 2, finished.Load())
}

// TestConcurrentUse uses one File from several goroutines.
func TestConcurrentUse(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(U32, 64, 64), "b": counting(F32, 8)})
	for way, open := range openedBy {
		t.Run(way, func(t *testing.T) {
			f := must(open(name))
			var all sync.WaitGroup
			for range 8 {
				all.Add(1)
				go func() {
					defer all.Done()
					for range 50 {
						column := must(must(f.Tensor("a")).Slice(All(), At(-1)))
						assert.Equal(t, uint32(63), must(Append[uint32](nil, column))[0])
						assert.Nil(t, f.Metadata())
						assert.Len(t, f.ParameterCount(), 2)
					}
				}()
			}
			all.Wait()
			require.NoError(t, f.Close())
		})
	}
}

// TestNothingStaysOpen looks at the descriptors of the process: a file that was loaded,
// refused or closed has none.
func TestNothingStaysOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	dir := must(filepath.EvalSymlinks(filepath.Dir(writeTemp(t, map[string]Tensor{"a": counting(U32, 4)}))))
	name := filepath.Join(dir, "model.safetensors")
	index := name + ".index.json"
	require.NoError(t, os.WriteFile(index, []byte(`{"weight_map":{"b":"model.safetensors"}}`), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken"), []byte("12345678"), 0o666))
	open := func() (names []string) {
		fds := must(os.ReadDir("/proc/self/fd"))
		for _, fd := range fds {
			if link, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(link, dir+"/") {
				names = append(names, link)
			}
		}
		return names
	}
	loaded := must(Load(name))
	require.Empty(t, open())
	require.NoError(t, loaded.Close())
	for _, f := range []func() (*File, error){
		func() (*File, error) { return Open(name) },
		func() (*File, error) { return OpenFS(os.DirFS(dir), "model.safetensors") },
	} {
		f := must(f())
		require.Equal(t, []string{name}, open())
		require.NoError(t, f.Close())
		require.Empty(t, open())
	}
	for _, refused := range []string{"broken", filepath.Base(index)} {
		for _, open := range []func(string) (*File, error){Open, Load, func(string) (*File, error) { return OpenFS(os.DirFS(dir), refused) }} {
			require.ErrorAs(t, errorOf(open(filepath.Join(dir, refused))), new(*FormatError))
		}
	}
	require.Empty(t, open())
}

// TestForgottenFileStaysMapped: a view does not keep its File alive, so the garbage
// collector must not unmap a file.
func TestForgottenFileStaysMapped(t *testing.T) {
	if runtime.GOOS != "linux" {
		return
	}
	name := writeTemp(t, map[string]Tensor{"a": counting(U32, 2)})
	view := func() []byte {
		a := must(must(Open(name)).Tensor("a"))
		return must(View[byte](a))
	}()
	for range 5 {
		runtime.GC()
		runtime.Gosched() // to finalizers and cleanups
	}
	require.Contains(t, string(must(os.ReadFile("/proc/self/maps"))), name)
	require.Equal(t, []byte{0, 0, 0, 0, 1, 0, 0, 0}, view)
}

// TestClosed: nothing is read or written of a tensor of a closed File, which can be closed
// again, alone or among others, of which the operation keeps none.
func TestClosed(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"x": counting(U32, 8, 8)})
	for way, open := range openedBy {
		f, closed := must(open(name)), must(open(name))
		x, lost := must(f.Tensor("x")), must(closed.Tensor("x"))
		column := must(lost.Slice(All(), At(1)))
		require.NoError(t, closed.Close())
		require.NoError(t, closed.Close())
		dir := t.TempDir()
		for _, y := range []Tensor{lost, column, must(Concat(0, lost, x, x)), must(Concat(0, x, lost, x))} {
			for _, last := range []string{"a", "z"} { // the closed one is read first, or last
				tensors := map[string]Tensor{last: y, "b": x, "c": x, "d": x}
				errs := []error{errorOf(y.WriteTo(io.Discard)), errorOf(Append[byte](nil, y))}
				for _, write := range writings(dir) {
					errs = append(errs, errorOf(write(tensors)))
				}
				for _, err := range errs {
					require.ErrorIs(t, err, fs.ErrClosed, way)
					require.ErrorContains(t, err, `tensor "x"`, way)
				}
			}
		}
		for _, y := range []Tensor{lost, column} {
			require.ErrorIs(t, errorOf(View[uint32](y)), fs.ErrClosed, way)
			var out bytes.Buffer
			n, _ := y.WriteTo(&out)
			require.Zero(t, n, way)
			for _, y := range []Tensor{y, must(Concat(0, y, y))} {
				require.ErrorIs(t, Write(&out, map[string]Tensor{"x": y}, nil), fs.ErrClosed, way)
			}
			require.Zero(t, out.Len(), way)
		}
		requireEmptyDir(t, dir)
		requireSoon(t, func() { f.Close() }) // nothing still uses it
	}
}
