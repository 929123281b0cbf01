package torch

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/stretchr/testify/require"
)

// TestSkipTellsObjects: the errors of tensors that cannot be read wrap errors.ErrUnsupported, those
// of objects without tensors do not, so that a caller can refuse the first and leave out the others.
func TestSkipTellsObjects(t *testing.T) {
	data := must(os.Open("testdata/among.pt"))
	defer data.Close()
	isTensor := make(map[string]bool)
	_, err := Opener{Skip: func(name string, why error) {
		isTensor[name] = errors.Is(why, errors.ErrUnsupported)
	}}.NewFile(data, must(data.Stat()).Size())
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"<a tuple of 1>": false, "args": false, "bad": false, "c": true, "sparse": true}, isTensor)
}

// TestHoldsTensor: a value that cannot be read holds a tensor if a tensor or a storage is anywhere
// in it, or if a known function of PyTorch did not accept its arguments.
func TestHoldsTensor(t *testing.T) {
	object := func(class string, args ...any) *pickle.Object {
		return &pickle.Object{Class: pickle.Global{Module: "program", Name: class}, Args: args}
	}
	sparse := &pickle.Object{Class: pickle.Global{Module: "torch._utils", Name: "_rebuild_sparse_tensor"}}
	loop := &pickle.List{}
	loop.Items = []any{loop, "text"}
	nested := any(&pickle.List{})
	for range maxDepth - 1 {
		nested = &pickle.List{Items: []any{nested}}
	}
	deep := &pickle.List{Items: []any{nested}}
	state := object("Namespace")
	state.State = &pickle.Dict{Entries: []pickle.Entry{{Key: "w", Value: &tensor{}}}}
	failed := object("f")
	failed.Why = errors.New("not its arguments")
	values := map[string]any{
		"tensor": &tensor{}, "storage": &storage{}, "sparse": sparse, "list": &pickle.List{Items: []any{"x", sparse}},
		"tuple": pickle.Tuple{int64(1), &tensor{}}, "arguments": object("Weights", &tensor{}), "state": state,
		"value": &pickle.Dict{Entries: []pickle.Entry{{Key: "x", Value: &tensor{}}}}, "key": &pickle.Dict{Entries: []pickle.Entry{{Key: object("K", &tensor{})}}},
		"failed": failed, "deep": deep,
		"-text": "text", "-nil": nil, "-object": object("Namespace", "x", pickle.Tuple{}), "-loop": loop, "-nested": nested, "-empty": pickle.Tuple{}, "-dict": &pickle.Dict{},
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		f := must(flatten(dict{"", &pickle.Dict{}}, newOperation()))
		for range 2 { // the second answer comes from the cache
			require.Equal(t, name[0] != '-', f.holdsTensor(values[name], maxDepth), name)
		}
	}
}

// TestItems: an object on which items were set counts as a dict, because it may be of a subclass of
// dict. Its attributes are left out. An object to which items were appended is not read, but its
// tensors are found.
func TestItems(t *testing.T) {
	const class = "ccollections\ndefaultdict\ncbuiltins\nlist\n\x85R"
	c := must(openBytes(zipOf(t, "\x80\x02"+class+"("+str("w")+whole4+str("n")+"K\x01u}"+str("attribute")+"K\x02sb."), ""))
	require.Len(t, c.tensors, 1)
	require.Contains(t, c.tensors, "w")
	require.Equal(t, map[string]string{"n": "1"}, c.metadata)
	c = must(openBytes(zipOf(t, "\x80\x02"+entries(str("t"), whole4, str("d"), class+str("a")+"K\x01s")+"."), ""))
	require.Equal(t, map[string]string{"d": `{"a":1}`}, c.metadata)
	isTensor := false
	data := zipOf(t, "\x80\x02"+entries(str("t"), whole4, str("d"), "ccollections\ndeque\n)R"+whole4+"a")+".")
	must(Opener{Skip: func(_ string, why error) { isTensor = errors.Is(why, errors.ErrUnsupported) }}.NewFile(bytes.NewReader(data), int64(len(data))))
	require.True(t, isTensor)
}

// TestScalarOfPairs: a scalar of two 4-bit floats, which safetensors cannot hold, is left out. It
// is not an error of the file.
func TestScalarOfPairs(t *testing.T) {
	scalar := "ctorch._utils\n_rebuild_tensor_v3\n(" + storageOf("torch.storage\nUntypedStorage", "0", 16) + num(0) + ")" + ")" + "\x89}ctorch\nfloat4_e2m1fn_x2\ntR"
	c := must(openBytes(zipOf(t, "\x80\x02"+entries(str("w"), whole4, str("s"), scalar)+"."), ""))
	require.Contains(t, c.tensors, "w")
	require.ErrorContains(t, c.refused["s"], "a scalar of two 4-bit floats")
}

// TestRankEntries: the rankfile.File of a rank has all entries of its dict, with the reasons why
// some cannot be read. It lists objects without tensors separately. A tensor that cannot be made is
// an error at each call.
func TestRankEntries(t *testing.T) {
	const object = "cprogram\nNamespace\n)R"
	far := tensorOf(storageOf(float4, "0", 4), 0, nums(5), nums(1))
	conjugate := strings.TrimSuffix(whole4, "tR") + entries(str("conj"), "\x88") + "tR"
	data := zipOf(t, "\x80\x02"+entries(str("far"), far, str("o1"), object, str("o2"), object, str("r1"), conjugate, str("r2"), conjugate, str("w"), whole4)+".")
	f, err := rankfile.Open(bytes.NewReader(data), int64(len(data)), "")
	require.NoError(t, err)
	require.Equal(t, []string{"o1", "o2"}, slices.Sorted(maps.Keys(f.Skipped)))
	var all []string
	for _, e := range f.Entries {
		all = append(all, e.Name)
		require.Equal(t, e.Name[0] == 'r', e.Why != nil, e.Name)
		for range 2 {
			switch e.Name {
			case "far":
				require.Error(t, errorOf(f.Tensor(e.Plain)))
			case "w":
				require.Equal(t, []int{4}, must(f.Tensor(e.Plain)).Shape())
			}
		}
	}
	require.Equal(t, []string{"far", "r1", "r2", "w"}, all)
}
