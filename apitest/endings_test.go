package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// An ending is a way in which a callback does not return.
type ending struct {
	name string
	end  func()
}

var endings = []ending{{"panic", func() { panic("boom") }}, {"Goexit", runtime.Goexit}}

// requireEnds calls f, whose callback ends, on a goroutine of its own. The panic
// arrives there, or the goroutine ends, or f returns an error: a func of a computed
// tensor, and a callback on another goroutine that calls runtime.Goexit. Memory
// faults are fatal again afterwards.
func requireEnds(t *testing.T, e ending, f func() error) {
	t.Helper()
	var err error
	var panicked any
	returned, faults := false, false
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			panicked = recover()
			faults = debug.SetPanicOnFault(false)
		}()
		err = f()
		returned = true
	}()
	requireSoon(t, ended)
	require.False(t, faults, "SetPanicOnFault is still on")
	switch {
	case returned:
		require.ErrorContains(t, err, map[string]string{"panic": "panicked: boom", "Goexit": "runtime.Goexit"}[e.name])
	case e.name == "panic":
		require.Equal(t, "boom", panicked)
	default:
		require.Nil(t, panicked)
	}
}

// requireSoon waits for a channel that something closes, unless it hangs.
func requireSoon(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		require.FailNow(t, "it hangs")
	}
}

// requireCloses checks that nothing still uses a file.
func requireCloses(t *testing.T, f *File) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Close()
	}()
	requireSoon(t, done)
}

// An endingRanges is an endingFile that is read by ranges. It reads some before it
// ends.
type endingRanges struct{ endingFile }

func (f endingRanges) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	n := 0
	for _, b := range ranges {
		clear(b)
		if n++; n == 2 {
			break
		}
	}
	f.end()
	return nil
}

// variants returns tensors made from one of bytes: whole, gathered, converted, joined, and so
// on.
func variants(t *testing.T, x Tensor) map[string]Tensor {
	t.Helper()
	rows := must(x.Reshape(x.Len()/64, 64))
	columns := must(rows.Slice(All(), Span(3, 5)))
	wide := must(must(x.Bitcast(BF16)).Convert(F32))
	other := must(NewTensor(U8, []int{rows.Shape()[0], 1}, make([]byte, rows.Shape()[0])))
	joined := must(Concat(1, other, rows))
	reshaped := must(transposed(t, rows).Reshape(8, x.Len()/8))
	computed, _ := counted(t, x)
	return map[string]Tensor{
		"whole": x, "gathered": columns, "converted": wide, "joined": joined, "computed": computed,
		"reshaped": mustSlice(t, reshaped, All(), Span(3, 5)),
	}
}

// writers are the operations that write tensors, into w where there is one.
func writers(t *testing.T) map[string]func(w io.Writer, x Tensor) error {
	return map[string]func(io.Writer, Tensor) error{
		"WriteTo": func(w io.Writer, x Tensor) error { _, err := x.WriteTo(w); return err },
		"Write":   func(w io.Writer, x Tensor) error { return Write(w, map[string]Tensor{"x": x, "y": x}, nil) },
		"Writer": func(w io.Writer, x Tensor) error {
			writer, err := NewWriter(w, &Header{Tensors: []TensorInfo{{Name: "x", DType: x.DType(), Shape: x.Shape()}}})
			if err != nil {
				return err
			}
			defer writer.Close()
			to, err := writer.Tensor("x")
			if err == nil {
				_, err = x.WriteTo(to)
			}
			return err
		},
	}
}

// TestReadersThatEnd lets readers and funcs panic or call runtime.Goexit, in every
// operation on every kind of tensor: nothing stays acquired, no goroutine and no
// file is left.
func TestReadersThatEnd(t *testing.T) {
	const size = 1 << 16
	h := &Header{Tensors: []TensorInfo{{Name: "x", DType: U8, Shape: []int{size}}}}
	head := must(h.AppendBinary(nil))
	dir := t.TempDir()
	operations := map[string]func(Tensor) error{
		"Append": func(x Tensor) error {
			dst, err := Append([]byte{7}, x)
			require.Equal(t, []byte{7}, dst)
			return err
		},
		"ReadAt":      func(x Tensor) error { _, err := x.ReadAt(make([]byte, 1000), 3); return err },
		"WriteFile":   func(x Tensor) error { return WriteFile(filepath.Join(dir, "x"), map[string]Tensor{"x": x}, nil) },
		"WriteShards": func(x Tensor) error { return WriteShards(dir, map[string]Tensor{"x": x, "y": x}, nil, 1) },
		"Create": func(x Tensor) error {
			w := must(Create(filepath.Join(dir, "x"), &Header{Tensors: []TensorInfo{{Name: "x", DType: x.DType(), Shape: x.Shape()}}}))
			defer w.Close()
			_, err := x.WriteTo(must(w.Tensor("x")))
			return err
		},
	}
	for name, write := range writers(t) {
		operations[name] = func(x Tensor) error { return write(io.Discard, x) }
	}
	before := runtime.NumGoroutine()
	for _, e := range endings {
		for source, open := range map[string]func() (*File, Tensor, error){
			"ReaderAt": func() (*File, Tensor, error) { return openX(NewFile(endingFile{head, e.end}, int64(len(head))+size)) },
			"RangeReader": func() (*File, Tensor, error) {
				return openX(NewFile(endingRanges{endingFile{head, e.end}}, int64(len(head))+size))
			},
			"NewTensorAt": func() (*File, Tensor, error) {
				x, err := NewTensorAt(U8, []int{size}, endingReader{e.end})
				return new(File), x, err
			},
			"NewTensorFunc": func() (*File, Tensor, error) {
				x, err := NewTensorFunc(U8, []int{size}, func([]byte) error { e.end(); return nil })
				return nil, x, err
			},
		} {
			f, x, err := open()
			require.NoError(t, err)
			kinds := map[string]Tensor{"computed": x}
			if source != "NewTensorFunc" { // which can be neither reshaped nor bitcast
				kinds = variants(t, x)
			}
			for kind, y := range kinds {
				for operation, do := range operations {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", e.name, source, kind, operation), func(t *testing.T) {
						requireEnds(t, e, func() error { return do(y) })
						requireEmptyDir(t, dir)
					})
				}
			}
			if f != nil {
				requireCloses(t, f)
			}
		}
	}
	requireGoroutines(t, before)
}

// openX returns a file and its tensor x.
func openX(f *File, err error) (*File, Tensor, error) {
	if err != nil {
		return nil, Tensor{}, err
	}
	x, err := f.Tensor("x")
	return f, x, err
}

// An endingWriter ends at its n-th Write.
type endingWriter struct {
	left int
	end  func()
}

func (w *endingWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		w.end()
	}
	return len(b), nil
}

// TestWritersThatEnd lets writers panic or call runtime.Goexit in their first
// and in a later Write, of every kind of tensor from every kind of file.
func TestWritersThatEnd(t *testing.T) {
	x := must(NewTensor(U8, []int{3 << 20}, make([]byte, 3<<20)))
	name := writeTemp(t, map[string]Tensor{"x": x})
	before := runtime.NumGoroutine()
	for _, e := range endings {
		for way, open := range openedBy {
			f := open(t, name)
			x := must(f.Tensor("x"))
			for kind, y := range variants(t, x) {
				for operation, write := range writers(t) {
					for _, n := range []int{0, 1} {
						t.Run(fmt.Sprintf("%s/%s/%s/%s/%d", e.name, way, kind, operation, n), func(t *testing.T) {
							w := &endingWriter{n, e.end}
							if n == 1 && operation == "WriteTo" {
								w.left = 0 // it may need one Write only
							}
							requireEnds(t, e, func() error { return write(w, y) })
						})
					}
				}
			}
			requireCloses(t, f)
		}
	}
	requireGoroutines(t, before)
}

// TestOpenersThatEnd lets what opens a file panic or call runtime.Goexit: the
// readers and file systems of the caller, and its callback for shards. The shards
// that are already open are closed.
func TestOpenersThatEnd(t *testing.T) {
	const index = `{"weight_map":{"a":"a","b":"b","c":"c","d":"d"}}`
	before := runtime.NumGoroutine()
	for _, e := range endings {
		for name, open := range map[string]func() error{
			"NewFile":    func() error { _, err := NewFile(endingReader{e.end}, 100); return err },
			"ReadHeader": func() error { _, err := ReadHeader(endingIO{e.end}); return err },
			"OpenShards, the index": func() error {
				_, err := OpenShards(endingIO{e.end}, func(string) (*File, error) { return nil, nil })
				return err
			},
			"OpenFS": func() error { _, err := OpenFS(endingFS{e.end}, "x"); return err },
		} {
			t.Run(e.name+"/"+name, func(t *testing.T) { requireEnds(t, e, open) })
		}
		t.Run(e.name+"/OpenShards", func(t *testing.T) {
			var opened, left atomic.Int64
			requireEnds(t, e, func() error {
				f, err := OpenShards(bytes.NewReader([]byte(index)), func(shard string) (*File, error) {
					if shard == "d" {
						for opened.Load() < 3 {
							runtime.Gosched()
						}
						e.end()
					}
					x := must(NewTensor(U8, []int{1}, []byte{1}))
					var file bytes.Buffer
					require.NoError(t, Write(&file, map[string]Tensor{shard: x}, nil))
					f, err := OpenFS(closingFS{fstest.MapFS{"x": {Data: file.Bytes()}}, &left}, "x")
					opened.Add(1)
					return f, err
				})
				require.Nil(t, f)
				return err
			})
			require.EqualValues(t, 3, opened.Load())
			require.Zero(t, left.Load(), "files are left open")
		})
	}
	requireGoroutines(t, before)
}

type endingIO struct{ end func() }

func (r endingIO) Read([]byte) (int, error) { r.end(); return 0, io.EOF }

type endingFS struct{ end func() }

func (f endingFS) Open(string) (fs.File, error) { f.end(); return nil, errors.New("ended") }

// A closingFS counts the files that are open.
type closingFS struct {
	fs.FS
	left *atomic.Int64
}

func (f closingFS) Open(name string) (fs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	f.left.Add(1)
	return closingFile{file, file.(io.ReaderAt), f.left}, nil
}

type closingFile struct {
	fs.File
	io.ReaderAt
	left *atomic.Int64
}

func (f closingFile) Close() error {
	f.left.Add(-1)
	return f.File.Close()
}
