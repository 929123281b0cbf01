package apitest_test

import (
	"maps"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestTie has pairs of tensors that share the same elements, and pairs that only seem to; only the
// first are written once.
func TestTie(t *testing.T) {
	data := []uint32{1, 2, 3, 4, 5, 6}
	of := func(data []uint32, shape ...int) Tensor { return must(NewTensor(U32, shape, data)) }
	floats := must(of(data, 6).Bitcast(F32))
	rounded := func() Tensor { return must(floats.Convert(BF16)) }
	column := func() Tensor { return must(of(data, 2, 3).Slice(All(), At(1))) }
	turned := func(shape ...int) Tensor { return must(must(of(data, 2, 3).Transpose()).Reshape(shape...)) }
	computed, _ := counted[byte](of(data, 6))
	joined := must(Concat(0, of(data, 6), of(data, 6)))
	tensors := map[string]Tensor{
		"b": of(data, 6), "a": of(data, 6), "c": of(data, 6),
		"other shape": of(data, 2, 3), "other shape, again": of(data, 2, 3),
		"other dtype": floats,
		"other data":  of(slices.Clone(data), 6),
		"row":         must(of(data, 2, 3).Slice(At(1))), "row, again": of(data[3:], 3),
		"column": column(), "column, again": column(),
		"rounded": rounded(), "rounded, again": rounded(),
		"rounded twice": must(must(floats.Convert(F16)).Convert(BF16)),
		"computed":      computed, "computed, again": computed,
		"joined": joined, "joined, again": joined,
		"empty": of(nil, 0), "empty, again": of(nil, 0),
		"transposed": must(of(data, 2, 1, 3).Transpose()), "transposed, again": must(of(data, 2, 1, 3).Transpose()), "transposed, other dims": must(of(data, 1, 2, 3).Transpose(2, 0, 1)),
		"square": must(of(data[:4], 2, 2).Transpose()), "square, as it was": must(of(data[:4], 2, 2).Transpose(0, 1)),
		"reshaped": turned(6), "reshaped, again": turned(6), "reshaped otherwise": turned(1, 6), "reshaped, other data": must(must(of(slices.Clone(data), 2, 3).Transpose()).Reshape(6)),
	}
	metadata := map[string]string{"format": "pt", "c": "taken"}
	kept, noted := Tie(tensors, metadata)
	require.Equal(t, map[string]string{
		"format": "pt", "b": "a", "c": "taken", "other shape, again": "other shape", "row, again": "row",
		"column, again": "column", "rounded, again": "rounded", "computed, again": "computed", "joined, again": "joined",
		"transposed, again": "transposed", "transposed, other dims": "transposed", "reshaped, again": "reshaped",
	}, noted)
	require.Equal(t, []string{"a", "column", "computed", "empty", "empty, again", "joined", "other data", "other dtype", "other shape",
		"reshaped", "reshaped otherwise", "reshaped, other data", "rounded", "rounded twice", "row", "square", "square, as it was", "transposed"}, slices.Sorted(maps.Keys(kept)))
	require.Len(t, tensors, 29, "the maps are not modified")
	require.Equal(t, map[string]string{"format": "pt", "c": "taken"}, metadata)

	f := must(Parse(saved(kept, noted)))
	all, rest := Untie(maps.Collect(f.Tensors()), f.Metadata())
	require.Equal(t, metadata, rest, "without the aliases")
	require.Equal(t, noted, f.Metadata(), "the map is not modified")
	delete(tensors, "c") // whose name the metadata had already
	require.Equal(t, slices.Sorted(maps.Keys(tensors)), slices.Sorted(maps.Keys(all)))
	for name, x := range tensors {
		require.Equal(t, appended[byte](x), appended[byte](all[name]), name)
	}
	again, notes := Tie(all, nil)
	require.Len(t, again, len(kept))
	require.Equal(t, "a", notes["b"])
}

// TestTieNothing: Tie and Untie return what they got where no tensors are tied.
func TestTieNothing(t *testing.T) {
	x := counting(U32, 2)
	for _, tensors := range []map[string]Tensor{{"x": x}, {}} {
		kept, noted := Tie(tensors, nil)
		require.Equal(t, tensors, kept)
		require.Nil(t, noted)
		for _, metadata := range []map[string]string{{"x": "y", "y": "z", "format": "pt"}, nil} {
			all, rest := Untie(tensors, metadata)
			require.Equal(t, tensors, all)
			require.Equal(t, metadata, rest)
		}
	}
	kept, _ := Tie(nil, nil)
	require.Empty(t, kept)
}

// TestTieInFiles ties tensors of a file, mapped and read, that share nothing, and
// one that is there under two names.
func TestTieInFiles(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(U32, 4), "b": counting(U32, 4)})
	for way, open := range openedBy {
		f := must(open(name))
		tensors := maps.Collect(f.Tensors())
		tensors["tied"] = tensors["b"]
		kept, noted := Tie(tensors, nil)
		require.Len(t, kept, 2, way)
		require.Equal(t, map[string]string{"tied": "b"}, noted)
		require.NoError(t, f.Close())
	}
}
