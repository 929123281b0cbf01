package apitest_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

func TestTie(t *testing.T) {
	data := []uint32{1, 2, 3, 4, 5, 6}
	of := func(data []uint32, shape ...int) Tensor {
		return must(NewTensor(U32, shape, data))
	}
	slice := func(x Tensor, ranges ...Range) Tensor {
		return must(x.Slice(ranges...))
	}
	cast := func(x Tensor) Tensor {
		return must(x.Bitcast(F32))
	}
	convert := func(x Tensor, dtypes ...DType) Tensor {
		for _, d := range dtypes {
			x = must(x.Convert(d))
		}
		return x
	}
	computed, _ := counted(t, of(data, 6))
	joined := must(Concat(0, of(data, 6), of(data, 6)))
	tensors := map[string]Tensor{
		"b": of(data, 6), "a": of(data, 6), "c": of(data, 6),
		"other shape": of(data, 2, 3), "other shape, again": of(data, 2, 3),
		"other dtype": cast(of(data, 6)),
		"other data":  of([]uint32{1, 2, 3, 4, 5, 6}, 6),
		"row":         slice(of(data, 2, 3), At(1)), "row, again": of(data[3:], 3),
		"column": slice(of(data, 2, 3), All(), At(1)), "column, again": slice(of(data, 2, 3), All(), At(1)),
		"rounded": convert(cast(of(data, 6)), BF16), "rounded, again": convert(cast(of(data, 6)), BF16),
		"rounded twice": convert(cast(of(data, 6)), F16, BF16),
		"computed":      computed, "computed, again": computed,
		"joined": joined, "joined, again": joined,
		"empty": of(nil, 0), "empty, again": of(nil, 0),
	}
	metadata := map[string]string{"format": "pt", "c": "taken"}
	kept, noted := Tie(tensors, metadata)
	require.Equal(t, map[string]string{
		"format": "pt", "b": "a", "c": "taken", "other shape, again": "other shape", "row, again": "row",
		"column, again": "column", "rounded, again": "rounded", "computed, again": "computed", "joined, again": "joined",
	}, noted)
	require.Equal(t, []string{"a", "column", "computed", "empty", "empty, again", "joined", "other data", "other dtype",
		"other shape", "rounded", "rounded twice", "row"}, slices.Sorted(maps.Keys(kept)))
	require.Len(t, tensors, 20, "the maps are not modified")
	require.Equal(t, map[string]string{"format": "pt", "c": "taken"}, metadata)

	var file bytes.Buffer
	require.NoError(t, Write(&file, kept, noted))
	f := must(Parse(file.Bytes()))
	all, rest := Untie(maps.Collect(f.Tensors()), f.Metadata())
	require.Equal(t, metadata, rest, "without the aliases")
	require.Equal(t, noted, f.Metadata(), "the map is not modified")
	delete(tensors, "c") // whose name the metadata had already
	require.Equal(t, slices.Sorted(maps.Keys(tensors)), slices.Sorted(maps.Keys(all)))
	for name, x := range tensors {
		require.Equal(t, appended[byte](t, x), appended[byte](t, all[name]), name)
	}
	again, notes := Tie(all, nil)
	require.Len(t, again, len(kept))
	require.Equal(t, "a", notes["b"])
}

// TestTieReshaped: the same elements of the same data in the same order are shared, by
// whichever way.
func TestTieReshaped(t *testing.T) {
	x := counting(t, U32, 4, 6)
	flat := func(x Tensor) Tensor { return must(transposed(t, x).Reshape(3, 8)) }
	kept, _ := Tie(map[string]Tensor{"a": flat(x), "b": flat(x)}, nil)
	require.Len(t, kept, 1)
	kept, _ = Tie(map[string]Tensor{"a": flat(x), "b": must(flat(x).Reshape(8, 3)), "c": flat(counting(t, U32, 4, 6))}, nil)
	require.Len(t, kept, 3)
}

func TestTieNothing(t *testing.T) {
	x := counting(t, U32, 2)
	kept, noted := Tie(map[string]Tensor{"x": x}, nil)
	require.Equal(t, map[string]Tensor{"x": x}, kept)
	require.Nil(t, noted)
	kept, noted = Tie(nil, nil)
	require.Empty(t, kept)
	require.Nil(t, noted)
	metadata := map[string]string{"x": "y", "y": "z", "format": "pt"}
	all, rest := Untie(map[string]Tensor{"x": x}, metadata)
	require.Equal(t, map[string]Tensor{"x": x}, all)
	require.Equal(t, metadata, rest)
	_, rest = Untie(map[string]Tensor{"x": x}, nil)
	require.Nil(t, rest)
}

// TestTieInFiles ties tensors of a file, mapped and read, that share nothing, and
// one that is there under two names.
func TestTieInFiles(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4), "b": counting(t, U32, 4)})
	for way, open := range openedBy {
		f := open(t, name)
		tensors := maps.Collect(f.Tensors())
		kept, _ := Tie(tensors, nil)
		require.Len(t, kept, 2, way)
		tensors["tied"] = tensors["b"]
		kept, noted := Tie(tensors, nil)
		require.Len(t, kept, 2, way)
		require.Equal(t, map[string]string{"tied": "b"}, noted)
		require.NoError(t, f.Close())
	}
}
