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
	"testing"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/stretchr/testify/require"
)

// TestOpenErrors opens what is no checkpoint: the error says so once, with the name.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	short := filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(short, []byte("1234"), 0o666))
	truncated := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4)})
	require.NoError(t, os.Truncate(truncated, 72))
	missing := filepath.Join(dir, "missing")
	for name, want := range map[string]string{
		"":        "safetensors: open : ",
		missing:   "safetensors: open " + missing + ": ",
		short:     "safetensors: open " + short + ": file of 4 bytes is shorter than the 8 bytes of the header length (at byte 0)",
		truncated: "safetensors: open " + truncated + ": the data buffer is truncated: the tensors need 16 bytes, the file has 8 (at byte 72)",
		dir:       "safetensors: open " + dir + ": no .safetensors file in it, only [short]",
	} {
		for _, open := range []func(string) (*File, error){Open, Load} {
			_, err := open(name)
			require.ErrorContains(t, err, want)
			require.Equal(t, 1, strings.Count(strings.ReplaceAll(err.Error(), "model.safetensors", ""), "safetensors: "), err)
			var path *fs.PathError
			require.ErrorAs(t, err, &path)
			require.Equal(t, name, path.Path)
			if name == "" || name == missing {
				require.ErrorIs(t, err, fs.ErrNotExist)
			}
		}
	}
	if runtime.GOOS == "linux" {
		_, err := Open("/dev/zero")
		require.EqualError(t, err, "safetensors: open /dev/zero: is a device")
	}
}

func TestClosed(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4, 4)})
	for way, open := range opened {
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
				require.Zero(t, out.Len(), "refused with nothing written")
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
		f := opened[way](t, name)
		a, err := f.Tensor("a")
		require.NoError(t, err)
		view, err := View[byte](a)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		runtime.GC()
		require.Equal(t, []byte{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}, view)
	}
}

// A blockingWriter tells when it is written to, and waits.
type blockingWriter struct{ entered, proceed chan struct{} }

func (w *blockingWriter) Write(b []byte) (int, error) {
	w.entered <- struct{}{}
	<-w.proceed
	return len(b), nil
}

func TestCloseWaits(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4)})
	for way, open := range opened {
		t.Run(way, func(t *testing.T) {
			f := open(t, name)
			a, err := f.Tensor("a")
			require.NoError(t, err)
			w := &blockingWriter{make(chan struct{}), make(chan struct{})}
			var order []string
			var mu sync.Mutex
			note := func(s string) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, s)
			}
			var all sync.WaitGroup
			all.Add(2)
			go func() {
				defer all.Done()
				n, err := a.WriteTo(w)
				note("written")
				require.NoError(t, err)
				require.EqualValues(t, 16, n)
			}()
			<-w.entered
			go func() {
				defer all.Done()
				require.NoError(t, f.Close())
				note("closed")
			}()
			// Once Close has begun, nothing new starts; what runs is not disturbed.
			for {
				if _, err := Append[uint32](nil, a); err != nil {
					require.ErrorIs(t, err, fs.ErrClosed)
					break
				}
				runtime.Gosched()
			}
			for range 1000 {
				runtime.Gosched()
			}
			mu.Lock()
			require.Empty(t, order)
			mu.Unlock()
			close(w.proceed)
			all.Wait()
			require.Len(t, order, 2)
		})
	}
}

// TestTruncated truncates a mapped file: operations that copy fail, and the
// program goes on.
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
			// The reader of a pipe is another goroutine, which nothing guards.
			r, w := io.Pipe()
			done := make(chan error)
			go func() {
				_, err := io.Copy(io.Discard, r)
				done <- err
			}()
			_, err = tensor.WriteTo(w)
			require.ErrorIs(t, err, errFault)
			w.Close()
			require.NoError(t, <-done)
		})
	}
}

// TestGuardPassesOtherPanics checks that only faults in the mapping become errors.
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

func TestConcurrentUse(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 64, 64), "b": counting(t, F32, 8)})
	for way, open := range opened {
		t.Run(way, func(t *testing.T) {
			f := open(t, name)
			var all sync.WaitGroup
			for range 8 {
				all.Add(1)
				go func() {
					defer all.Done()
					for range 50 {
						a, err := f.Tensor("a")
						require.NoError(t, err)
						column, err := a.Slice(All(), At(-1))
						require.NoError(t, err)
						got, err := Append[uint32](nil, column)
						require.NoError(t, err)
						require.Equal(t, uint32(63), got[0])
						require.Nil(t, f.Metadata())
						require.Len(t, f.ParameterCount(), 2)
					}
				}()
			}
			all.Wait()
			require.NoError(t, f.Close())
		})
	}
}
