package safetensors

import (
	"bytes"
	"crypto/sha256"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOpenErrors checks that errors of Open and Load name the file and the
// package, each once.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(short, []byte("1234"), 0o666))
	truncated := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4)})
	require.NoError(t, os.Truncate(truncated, 72))
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		rule, name, want string
		notExist         bool
	}{
		{"a name is not empty", "", "", true},
		{"the file exists", missing, "", true},
		{"a file has a header length", short, "file of 4 bytes is shorter than the 8 bytes of the header length (at byte 0)", false},
		{"a file holds the data of its tensors", truncated, "the data buffer is truncated: the tensors need 16 bytes, the file has 8 (at byte 72)", false},
		{"a folder holds a .safetensors file", dir, "no .safetensors file in it, only [short]", false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			for _, open := range []func(string) (*File, error){Open, Load} {
				_, err := open(c.name)
				require.ErrorContains(t, err, "safetensors: open "+c.name+": "+c.want)
				require.Equal(t, 1, strings.Count(strings.ReplaceAll(err.Error(), "model.safetensors", ""), "safetensors: "), err)
				var path *fs.PathError
				require.ErrorAs(t, err, &path)
				require.Equal(t, c.name, path.Path)
				if c.name != "" {
					require.Equal(t, 1, strings.Count(err.Error(), c.name), err)
				}
				if c.notExist {
					require.ErrorIs(t, err, fs.ErrNotExist)
				}
			}
		})
	}
	if runtime.GOOS == "linux" {
		_, err := Open("/dev/zero")
		require.EqualError(t, err, "safetensors: open /dev/zero: is a device")
	}
}

// TestClosed checks that every operation on a tensor of a closed File is an error
// wrapping fs.ErrClosed, and writes nothing.
func TestClosed(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4, 4)})
	for way, open := range openedBy {
		t.Run(way, func(t *testing.T) {
			f := open(t, name)
			a, err := f.Tensor("a")
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.NoError(t, f.Close())
			column, err := a.Slice(All(), At(1))
			require.NoError(t, err)
			for _, tensor := range []Tensor{a, column} {
				_, err = Append[uint32](nil, tensor)
				require.ErrorIs(t, err, fs.ErrClosed)
				_, err = View[uint32](tensor)
				require.ErrorIs(t, err, fs.ErrClosed)
				n, err := tensor.WriteTo(io.Discard)
				require.ErrorIs(t, err, fs.ErrClosed)
				require.Zero(t, n)
				var out bytes.Buffer
				require.ErrorIs(t, Write(&out, map[string]Tensor{"x": tensor}, nil), fs.ErrClosed)
				require.Zero(t, out.Len(), "nothing is written")
				target := filepath.Join(t.TempDir(), "x")
				require.ErrorIs(t, WriteFile(target, map[string]Tensor{"x": tensor}, nil), fs.ErrClosed)
				require.NoFileExists(t, target)
			}
		})
	}
}

func TestViewsOutliveClose(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4)})
	for _, way := range []string{"Load", "Parse"} {
		f := openedBy[way](t, name)
		a, err := f.Tensor("a")
		require.NoError(t, err)
		view, err := View[byte](a)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		runtime.GC()
		require.Equal(t, []byte{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}, view)
	}
}

// A blockingWriter announces each Write and waits until it may proceed.
type blockingWriter struct{ entered, proceed chan struct{} }

func (w *blockingWriter) Write(b []byte) (int, error) {
	w.entered <- struct{}{}
	<-w.proceed
	return len(b), nil
}

// TestCloseWaits checks that Close waits for a WriteTo in progress, while new
// operations fail at once.
func TestCloseWaits(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4)})
	for way, open := range openedBy {
		t.Run(way, func(t *testing.T) {
			f := open(t, name)
			a, err := f.Tensor("a")
			require.NoError(t, err)
			w := &blockingWriter{make(chan struct{}), make(chan struct{})}
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
			<-w.entered
			go func() {
				defer all.Done()
				err := f.Close()
				finished.Add(1)
				assert.NoError(t, err)
			}()
			// Once Close has started, new operations fail; the one in progress goes on.
			deadline := time.Now().Add(10 * time.Second)
			for err = nil; err == nil && time.Now().Before(deadline); runtime.Gosched() {
				_, err = Append[uint32](nil, a)
			}
			assert.ErrorIs(t, err, fs.ErrClosed)
			for range 1000 {
				runtime.Gosched()
			}
			assert.Zero(t, finished.Load(), "WriteTo and Close both wait")
			close(w.proceed)
			all.Wait()
			require.EqualValues(t, 2, finished.Load())
		})
	}
}

// TestTruncated truncates a mapped file: copying operations return an error, and
// the program survives.
func TestTruncated(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" && runtime.GOOS != "freebsd" {
		t.Skip("a mapped file cannot be truncated on this system")
	}
	big := counting(t, F32, 1024, 1024)
	half, err := NewTensor(BF16, []int{1024, 1024}, make([]uint16, 1<<20))
	require.NoError(t, err)
	name := writeTemp(t, map[string]Tensor{"big": big, "half": half})
	f, err := Open(name)
	require.NoError(t, err)
	defer f.Close()
	require.True(t, f.parts[0].src.mapped)
	require.NoError(t, os.Truncate(name, 8192))

	tensors := maps.Collect(f.Tensors())
	column, err := tensors["big"].Slice(All(), Span(0, 16))
	require.NoError(t, err)
	wide, err := tensors["big"].Slice(All(), Span(0, 600))
	require.NoError(t, err)
	rounded, err := tensors["big"].Convert(BF16)
	require.NoError(t, err)
	for name, tensor := range map[string]Tensor{"whole": tensors["big"], "column": column, "wide": wide, "rounded": rounded, "half": tensors["half"]} {
		t.Run(name, func(t *testing.T) {
			_, err := Append[byte](nil, tensor)
			require.ErrorIs(t, err, errFault)
			if float.Exact(tensor.DType().float(), float.F32) {
				_, err = Append[float32](nil, tensor)
				require.ErrorIs(t, err, errFault)
			}
			var out bytes.Buffer
			_, err = tensor.WriteTo(&out)
			require.ErrorIs(t, err, errFault)
			_, err = tensor.WriteTo(sha256.New())
			require.ErrorIs(t, err, errFault)
			target := filepath.Join(t.TempDir(), "x")
			require.Error(t, WriteFile(target, map[string]Tensor{"x": tensor}, nil))
			require.NoFileExists(t, target)
			// A pipe is read on another goroutine, where a fault would not be caught.
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, r)
				done <- err
			}()
			_, err = tensor.WriteTo(w)
			w.Close()
			require.ErrorIs(t, err, errFault)
			require.NoError(t, <-done)
		})
	}
}

// TestGuardPassesOtherPanics checks that only faults in the mapping become
// errors: any other panic and any error of the function pass.
func TestGuardPassesOtherPanics(t *testing.T) {
	s := &source{mem: make([]byte, 8), mapped: true}
	require.PanicsWithValue(t, "other", func() { s.guard(func() error { panic("other") }) })
	require.Panics(t, func() {
		s.guard(func() error {
			var p *int
			*p = 1
			return nil
		})
	})
	require.ErrorIs(t, s.guard(func() error { return io.EOF }), io.EOF)
}

// TestConcurrentUse uses one File from several goroutines.
func TestConcurrentUse(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 64, 64), "b": counting(t, F32, 8)})
	for way, open := range openedBy {
		t.Run(way, func(t *testing.T) {
			f := open(t, name)
			var all sync.WaitGroup
			for range 8 {
				all.Add(1)
				go func() {
					defer all.Done()
					for range 50 {
						a, err := f.Tensor("a")
						if !assert.NoError(t, err) {
							return
						}
						column, err := a.Slice(All(), At(-1))
						if !assert.NoError(t, err) {
							return
						}
						got, err := Append[uint32](nil, column)
						if !assert.NoError(t, err) {
							return
						}
						assert.Equal(t, uint32(63), got[0])
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
