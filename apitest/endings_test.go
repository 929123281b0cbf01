package apitest_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// An ending is a way in which a callback does not return: a reader, a writer, a file system.
type ending struct {
	name string
	end  func()
}

func (e ending) Read([]byte) (int, error)          { e.end(); return 0, io.EOF }
func (e ending) ReadAt([]byte, int64) (int, error) { e.end(); return 0, io.EOF }
func (e ending) Open(string) (fs.File, error)      { e.end(); return nil, errors.New("ended") }

var endings = []ending{{"panic", func() { panic("boom") }}, {"Goexit", runtime.Goexit}}

// requireEnds calls f on a new goroutine. A callback of f panics or calls runtime.Goexit. Then f
// does the same on that goroutine, or returns an error. It returns an error if the callback is the
// func of a computed tensor, or if the callback called runtime.Goexit on a goroutine other than that
// of f. Afterwards, memory faults are fatal again.
func requireEnds(t *testing.T, e ending, f func() error) {
	t.Helper()
	var err error
	var panicked any
	returned, faults := false, false
	requireSoon(t, func() {
		defer func() {
			panicked = recover()
			faults = debug.SetPanicOnFault(false)
		}()
		err = f()
		returned = true
	})
	require.False(t, faults, "SetPanicOnFault is still on")
	switch {
	case returned:
		require.False(t, errors.As(err, new(*FormatError)))
		require.ErrorContains(t, err, map[string]string{"panic": "panicked: boom", "Goexit": "runtime.Goexit"}[e.name])
	case e.name == "panic":
		require.Equal(t, "boom", panicked)
	default:
		require.Nil(t, panicked)
	}
}

// requireSoon calls f on a new goroutine, and fails the test if f has not returned after five
// minutes.
func requireSoon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		require.FailNow(t, "it hangs")
	}
}

// endingFile returns a file that has a header, and ends when its data is read.
func endingFile(head []byte, end func()) readerAtFunc {
	return func(b []byte, off int64) (int, error) {
		if off >= int64(len(head)) {
			end()
		}
		return endlessReader{head}.ReadAt(b, off)
	}
}

// variants returns tensors made from one of bytes, which are read.
func variants(x Tensor) map[string]derived {
	all := derivedOf(must(must(x.Bitcast(F32)).Reshape(64, x.Len()/256)))
	computed, _ := counted[byte](x)
	all["computed"] = derived{Tensor: computed}
	delete(all, "of no elements")
	return all
}

// writers are the operations that write tensors to w.
var writers = map[string]func(w io.Writer, x Tensor) error{
	"WriteTo": func(w io.Writer, x Tensor) error { return errorOf(x.WriteTo(w)) },
	"Write":   func(w io.Writer, x Tensor) error { return Write(w, map[string]Tensor{"x": x, "y": x}, nil) },
	"Writer": func(w io.Writer, x Tensor) error {
		return writeBy(func(h *Header) (*Writer, error) { return NewWriter(w, h) }, must(FileOf(map[string]Tensor{"x": x}, nil, nil)), 0)
	},
}

// TestReadersThatEnd lets readers and funcs panic or call runtime.Goexit, in every
// operation on every kind of tensor: nothing stays acquired, no goroutine and no
// file is left.
func TestReadersThatEnd(t *testing.T) {
	const size, blocks = 1 << 16, 40 << 20
	head := bytesHead(size)
	dir := t.TempDir()
	operations := map[string]func(Tensor) error{
		"two shards": func(x Tensor) error { return WriteShards(dir, map[string]Tensor{"x": x, "y": x}, nil, 1) },
	}
	for name, read := range readings(dir) {
		operations[name] = func(x Tensor) error { return errorOf(read(x)) }
	}
	for name, write := range writers {
		operations[name] = func(x Tensor) error { return write(io.Discard, x) }
	}
	before := runtime.NumGoroutine()
	for _, e := range endings {
		read := must(NewFile(endingFile(head, e.end), int64(len(head))+size))
		ranges := must(NewFile(rangesOf(endingFile(head, e.end)), int64(len(head))+size))
		large := bytesHead(blocks)
		several := must(NewFile(endingFile(large, e.end), int64(len(large))+blocks))
		for source, kinds := range map[string]map[string]derived{
			"ReaderAt":      variants(must(read.Tensor("x"))),
			"RangeReader":   variants(must(ranges.Tensor("x"))),
			"several":       {"blocks": {Tensor: must(several.Tensor("x"))}},
			"NewTensorAt":   variants(must(NewTensorAt(U8, []int{size}, e))),
			"NewTensorFunc": {"computed": {Tensor: must(NewTensorFunc(U8, []int{size}, func([]byte) error { e.end(); return nil }))}},
		} {
			for kind, y := range kinds {
				for operation, do := range operations {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", e.name, source, kind, operation), func(t *testing.T) {
						requireEnds(t, e, func() error { return do(y.Tensor) })
						requireEmptyDir(t, dir)
					})
				}
			}
		}
		for _, f := range []*File{read, ranges, several} {
			requireSoon(t, func() { f.Close() }) // nothing still uses it
		}
	}
	requireGoroutines(t, before)
}

// TestWritersThatEnd lets writers panic or call runtime.Goexit in their first
// and in a later Write, of every kind of tensor from every kind of file.
func TestWritersThatEnd(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"x": must(NewTensor(U8, []int{3 << 20}, make([]byte, 3<<20)))})
	before := runtime.NumGoroutine()
	for _, e := range endings {
		for way, open := range openedBy {
			f := must(open(name))
			for kind, y := range variants(must(f.Tensor("x"))) {
				for operation, write := range writers {
					for _, n := range []int{0, 1} {
						t.Run(fmt.Sprintf("%s/%s/%s/%s/%d", e.name, way, kind, operation, n), func(t *testing.T) {
							left := n
							if operation == "WriteTo" {
								left = 0 // it may need one Write only
							}
							w := writerFunc(func(b []byte) (int, error) {
								if left--; left < 0 {
									e.end()
								}
								return len(b), nil
							})
							requireEnds(t, e, func() error { return write(w, y.Tensor) })
						})
					}
				}
			}
			requireSoon(t, func() { f.Close() }) // nothing still uses it
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
			"NewFile":               func() error { return errorOf(NewFile(e, 100)) },
			"ReadHeader":            func() error { return errorOf(ReadHeader(e)) },
			"OpenShards, the index": func() error { return errorOf(OpenShards(e, func(string) (*File, error) { return nil, nil })) },
			"OpenFS":                func() error { return errorOf(OpenFS(e, "x")) },
		} {
			t.Run(e.name+"/"+name, func(t *testing.T) { requireEnds(t, e, open) })
		}
		t.Run(e.name+"/OpenShards", func(t *testing.T) {
			var opened atomic.Int64
			files := fstest.MapFS{}
			for _, shard := range []string{"a", "b", "c"} {
				files[shard] = &fstest.MapFile{Data: saved(map[string]Tensor{shard: counting(U32)}, nil)}
			}
			shards, open := countOpen(files)
			requireEnds(t, e, func() error {
				f, err := OpenShards(strings.NewReader(index), func(shard string) (*File, error) {
					if shard == "d" {
						for opened.Load() < 3 {
							runtime.Gosched()
						}
						e.end()
					}
					f, err := OpenFS(shards, shard)
					opened.Add(1)
					return f, err
				})
				require.Nil(t, f)
				return err
			})
			require.EqualValues(t, 3, opened.Load())
			require.Zero(t, open.Load(), "files are left open")
		})
	}
	requireGoroutines(t, before)
}
