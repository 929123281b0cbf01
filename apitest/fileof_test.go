package apitest_test

import (
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// kindsOf returns tensors of every kind under names whose order is not that of a file.
func kindsOf(t testing.TB) map[string]Tensor {
	tensors := sourcesOf(t, counting(F32, 6, 4))
	for name, x := range maps.Clone(tensors) {
		part := must(x.Slice(All(), Span(1, 3)))
		tensors["sliced "+name] = part
		tensors["half "+name] = must(x.Convert(BF16))
		tensors["joined "+name] = must(Concat(1, part, x))
		tensors["empty "+name] = must(x.Slice(Span(2, 2)))
	}
	tensors["a \"scalar\"\n"] = counting(I32)
	return tensors
}

// TestFileOf compares a File of tensors with the one that Write makes of them.
func TestFileOf(t *testing.T) {
	for _, tensors := range []map[string]Tensor{nil, {}, {"x": counting(U32, 0)}, {"": counting(U32)}, kindsOf(t)} {
		for _, metadata := range []map[string]string{nil, {}, {"b": "\x00", "a": "ü"}} {
			f := must(FileOf(tensors, metadata, nil))
			file := saved(tensors, metadata)
			written := must(Parse(file))
			require.Equal(t, written.Header(), f.Header())
			require.Equal(t, written.Metadata(), f.Metadata())
			require.Equal(t, written.Len(), f.Len())
			require.Equal(t, written.ParameterCount(), f.ParameterCount())
			for name, h := range f.Headers() {
				require.Empty(t, name)
				require.Equal(t, written.Header(), h)
			}
			require.Equal(t, namesOf(written), namesOf(f))
			for name, x := range f.Tensors() {
				require.Equal(t, tensors[name], x, "the tensor itself")
				require.Equal(t, x, must(f.Tensor(name)))
			}
			require.ErrorIs(t, errorOf(f.Tensor("absent")), fs.ErrNotExist)
			require.NoError(t, f.Close())
		}
	}
}

// TestFileOfCopiesNothing: the tensors of a File keep their views, and the File its
// tensors.
func TestFileOfCopiesNothing(t *testing.T) {
	data := []float32{1, 2}
	x := must(NewTensor(F32, []int{2}, data))
	tensors := map[string]Tensor{"x": x}
	metadata := map[string]string{"a": "b"}
	f := must(FileOf(tensors, metadata, nil))
	tensors["y"], metadata["a"] = x, "c"
	delete(tensors, "x")
	require.Equal(t, map[string]string{"a": "b"}, f.Metadata())
	require.Equal(t, 1, f.Len())
	require.Same(t, &data[0], &must(View[float32](must(f.Tensor("x"))))[0])
}

// TestFileOfClose calls close once, whichever way the File is closed, also if close closes
// the File itself, and what it is joined into.
func TestFileOfClose(t *testing.T) {
	failure := errors.New("failure")
	tensors := checkpointOf(4)
	for way, own := range map[string]func(*File) (*File, error){
		"alone":  func(f *File) (*File, error) { return f, nil },
		"joined": func(f *File) (*File, error) { return Join(f) },
		"a shard": func(f *File) (*File, error) {
			index := strings.NewReader(`{"weight_map":{"t02":"s"}}`)
			return OpenShards(index, func(string) (*File, error) { return f, nil })
		},
	} {
		calls := 0
		var inner, f *File
		inner = must(FileOf(tensors, nil, func() error {
			calls++
			require.NoError(t, inner.Close(), way)
			require.NoError(t, f.Close(), way)
			return failure
		}))
		f = must(own(inner))
		for name, x := range f.Tensors() {
			require.Equal(t, tensors[name], x, way)
		}
		require.Zero(t, calls)
		require.ErrorIs(t, f.Close(), failure, way)
		require.NoError(t, f.Close(), way)
		require.NoError(t, inner.Close(), way)
		require.Equal(t, 1, calls, way)
	}
	closed := 0
	failing := func() *File {
		return must(FileOf(nil, nil, func() error { closed++; return failure }))
	}
	require.ErrorIs(t, must(Join(failing(), failing())).Close(), failure)
	require.Equal(t, 2, closed, "the error of one does not leave the other open")
	file := must(Open(writeTemp(t, tensors)))
	f := must(FileOf(maps.Collect(file.Tensors()), nil, file.Close))
	x := must(f.Tensor("t00"))
	require.NoError(t, f.Close())
	require.ErrorIs(t, errorOf(Append[uint32](nil, x)), fs.ErrClosed)
}
