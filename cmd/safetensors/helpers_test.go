package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/convert"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/stretchr/testify/require"
)

// TestIsPlain: a completion is a word of at most 1000 bytes that every shell takes literally.
func TestIsPlain(t *testing.T) {
	for text, plain := range map[string]bool{
		"": false, "a": true, "-": false, "-a": false, "a-": true, "a.b_c/d+e": true, "0": true, "é重": true, "a b": false, "a$": false, "a~": false, "a\x00": false,
		strings.Repeat("a", 1000): true, strings.Repeat("a", 1001): false,
	} {
		require.Equal(t, plain, isPlain(text), "%.10q", text)
	}
}

// TestPageDate: SOURCE_DATE_EPOCH is a number of seconds up to the end of the year 9999.
func TestPageDate(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "10": 10, "0012": 12, "253402300799": 253402300799} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		require.True(t, must(pageDate()).Equal(time.Unix(want, 0)), text)
	}
	for _, text := range []string{"-1", "253402300800", "1.5", "0x10", "a", " 1"} {
		t.Setenv("SOURCE_DATE_EPOCH", text)
		_, err := pageDate()
		require.ErrorContains(t, err, "expected seconds since 1970")
		require.EqualError(t, (&command{page: "x.html"}).checkPage(), err.Error())
		require.EqualError(t, (&command{page: "x.html"}).drawPage(nil), err.Error())
	}
	t.Setenv("SOURCE_DATE_EPOCH", "")
	require.False(t, must(pageDate()).Before(time.Now().Add(-time.Hour)))
}

// TestParseRanges compares slices of a tensor with those of Python.
func TestParseRanges(t *testing.T) {
	x := must(safetensors.NewTensor(safetensors.U8, []int{4, 3}, []byte{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}))
	for text, want := range map[string][]byte{
		"": {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}, ":": {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}, "1": {10, 11, 12}, "1,": {10, 11, 12}, "[:, 1,]": {1, 11, 21, 31}, "-1": {30, 31, 32},
		"1:3": {10, 11, 12, 20, 21, 22}, "[1:3, 0]": {10, 20}, ":,1": {1, 11, 21, 31}, "::2,0": {0, 20}, "1::2,0": {10, 30}, ":3:2,0": {0, 20}, "0:1:1,2": {2},
		"-2:,:1": {20, 30}, "2:2": {}, "::4,::3": {0}, "3:,2:": {32},
	} {
		got := must(x.Slice(must(parseRanges(text, x.Shape()))...))
		data := must(safetensors.Append([]byte{}, got))
		require.Equal(t, want, data, text)
	}
	for text, want := range map[string]string{
		"0,0,0": "3 ranges, but the tensor has 2 dimensions", "::0": "the step 0 of \"::0\" is below 1", "::-1": "the step -1", "1:2:3:4": "is not an index or START:STOP:STEP",
		":::": "is not an index", "a": "is not an index", ",,": "is not an index", "1:b": "is not an index", ",": "is not an index",
	} {
		_, err := parseRanges(text, x.Shape())
		require.ErrorContains(t, err, want, text)
	}
}

// TestTrailingNumbers: all arguments may be numbers.
func TestTrailingNumbers(t *testing.T) {
	require.Equal(t, []string{"1", "0.5"}, trailingNumbers([]string{"1", "0.5"}))
	require.Equal(t, []string{"2"}, trailingNumbers([]string{"1", "a", "2"}))
	require.Empty(t, trailingNumbers([]string{"1", "a"}))
}

// TestListsEnd: ten lines are printed of a list of notes, or of refused tensors, and then how many more there are.
func TestListsEnd(t *testing.T) {
	for n := 9; n <= 12; n++ {
		w := &copyJob{copyFlags: new(copyFlags), counts: make(map[string]*convert.Count), tensors: make(map[string]safetensors.Tensor)}
		src := &source.Checkpoint{Name: "src"}
		src.Refused, src.Tensors = make(map[string]error), make(map[string]safetensors.Tensor)
		w.src, w.origin = src, make(map[string]string)
		var names []string
		for i := range n {
			name := fmt.Sprintf("x%02d", i)
			names = append(names, name)
			src.Refused[name] = errors.New("why")
			big := must(safetensors.NewTensor(safetensors.F32, []int{1}, []float32{1e6}))
			w.tensors[name], w.origin[name], src.Tensors[name] = must(big.Convert(safetensors.F16)), name, big
		}
		require.NoError(t, w.count())
		for _, x := range w.tensors {
			must(safetensors.Append[byte](nil, x))
		}
		var notes []string
		w.notes(func(text string) { notes = append(notes, text) })
		refused := strings.Split(refusedError(src, names).Error(), "\n")
		require.Len(t, notes, min(n, 11))
		require.Len(t, refused, min(n, 11)+1)
		require.Equal(t, "tensor x08: 1 value became infinite", notes[8])
		require.Equal(t, `"x08" of src: why`, refused[8])
		if n > 10 {
			require.Equal(t, "so did values of "+map[int]string{11: "1 other tensor", 12: "2 other tensors"}[n], notes[10])
			require.Equal(t, fmt.Sprintf("and %d more of src", n-10), refused[10])
		}
		require.Equal(t, "--except leaves out what cannot be read", refused[len(refused)-1])
	}
	require.NoError(t, refusedError(&source.Checkpoint{}, []string{"x"}))
}

// TestPermanent: the errors after which another try of a part cannot succeed.
func TestPermanent(t *testing.T) {
	format, absent, system, other := &safetensors.FormatError{}, fs.ErrNotExist, syscall.EIO, errors.New("x")
	for _, c := range []struct {
		err           error
		refuse, local bool
	}{{format, true, true}, {absent, true, true}, {system, false, false}, {other, false, true}, {errors.Join(system, absent), true, true}, {fmt.Errorf("wrapped: %w", system), false, false}} {
		require.Equal(t, c.refuse, errors.As(permanent(c.err), new(parts.Refusal)), "%v", c.err)
		require.Equal(t, c.local, errors.As(permanentLocal(c.err), new(parts.Refusal)), "%v", c.err)
		require.ErrorIs(t, permanent(c.err), c.err)
		require.ErrorIs(t, permanentLocal(c.err), c.err)
	}
	require.NoError(t, permanent(nil))
	require.NoError(t, permanentLocal(nil))
}

// TestNamesOfFiles has tables of funcs that make names out of names.
func TestNamesOfFiles(t *testing.T) {
	for name, want := range map[string]string{"a.safetensors": "a.safetensors.sig", "dir/": "dir.sig", "a/b": filepath.FromSlash("a/b.sig")} {
		require.Equal(t, want, must(signaturePath(name)))
	}
	dir := t.TempDir()
	t.Chdir(dir)
	mkdir(t, "model")
	for _, name := range []string{".", "./", "model/.."} {
		path := must(signaturePath(name))
		require.True(t, filepath.IsAbs(path), path)
		require.Equal(t, filepath.Base(dir)+".sig", filepath.Base(path))
	}
	require.Equal(t, filepath.Base(filepath.Dir(dir))+".sig", filepath.Base(must(signaturePath(".."))))
	require.ErrorContains(t, errorOnly(signaturePath("s3://bucket/x")), "--out is missing")

	for _, c := range []struct {
		file, model, want string
		in                bool
	}{
		{"model/x.sig", "model", "x.sig", true}, {"x.sig", "model", "", false}, {"model", "model", "", false}, {"model/x", ".", "model/x", true},
		{"x.sig", "s3://bucket", "", false}, {"none/x", "model", "", false}, {"model/x", "none", "", false}, {"../x", "model", "", false},
	} {
		below, in := within(filepath.FromSlash(c.file), c.model)
		require.Equal(t, c.in, in, "%v", c)
		if in {
			require.Equal(t, c.want, below)
		}
	}

	for _, c := range [][3]string{{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"s3://x/y?z=1", "b", "s3://x/y/b?z=1"}, {"s3://x/?z=1", "b", "s3://x/b?z=1"}, {"a?b", "c", "a?b/c"}, {"s3://x", "b", "s3://x/b"}} {
		require.Equal(t, c[2], source.Inside(c[0], c[1]))
	}
	require.True(t, isBelow("a/b", []string{"x", "a"}))
	require.False(t, isBelow("ab", []string{"a"}))
	require.False(t, isBelow("a", []string{"a"}))
	require.False(t, isBelow("a/b", nil))
}

func errorOnly[T any](_ T, err error) error { return err }

// TestChangeMetadata: the format is added to metadata that begin, and nothing is left of metadata whose last key is deleted.
func TestChangeMetadata(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		before, pairs m
		remove        []string
		want          m
	}{
		{nil, nil, nil, nil}, {m{}, nil, nil, nil}, {m{"a": "1"}, nil, nil, m{"a": "1"}}, {m{"a": "1"}, m{"a": "2"}, nil, m{"a": "2"}}, {nil, m{"a": "1"}, nil, m{"a": "1", "format": "pt"}},
		{nil, m{"format": "np"}, nil, m{"format": "np"}}, {m{"a": "1"}, nil, []string{"a"}, nil}, {m{"a": "1"}, m{"b": "2"}, []string{"a"}, m{"b": "2"}}, {m{"a": "1", "b": "2"}, nil, []string{"b"}, m{"a": "1"}},
		{m{"a": "1"}, m{"a": "3"}, []string{"a"}, m{"a": "3"}},
	} {
		before := fmt.Sprint(c.before)
		require.Equal(t, c.want, must(changeMetadata(c.before, c.pairs, c.remove)), "%v", c)
		require.Equal(t, before, fmt.Sprint(c.before), "it is not changed")
	}
	_, err := changeMetadata(m{"a": "1"}, m{"b": "2"}, []string{"b"})
	require.EqualError(t, err, `there is no metadata "b" to delete`)
	_, err = changeMetadata(m{"a": "1"}, nil, []string{"a", "a"})
	require.EqualError(t, err, `there is no metadata "a" to delete`)
}

// TestTolerances: a tolerance is finite and not negative.
func TestTolerances(t *testing.T) {
	for x, fits := range map[float64]bool{0: true, math.Copysign(0, -1): true, 1e-300: true, 0.5: true, math.MaxFloat64: true, math.Inf(1): false, -1e-300: false, math.NaN(): false} {
		require.Equal(t, fits, checkTolerance("atol", x) == nil, "%v", x)
	}
}

// TestIndexName: the index of shards has the variant in its name that they have.
func TestIndexName(t *testing.T) {
	for shard, want := range map[string]string{
		"model-00001-of-00002.safetensors": "model.safetensors.index.json", "model.fp16-00001-of-00002.safetensors": "model.safetensors.index.fp16.json",
		"model-00001-of-00002.fp16.safetensors": "model.safetensors.index.fp16.json", "x.safetensors": "model.safetensors.index.json",
	} {
		w := &copyJob{src: &source.Checkpoint{Layout: &source.Layout{Shards: map[string]string{"x": shard}}}}
		require.Equal(t, want, w.indexName(), shard)
	}
	for file, want := range map[string]string{
		"adapter_model.safetensors": "adapter_model", "adapter_model-00001-of-00002.safetensors": "adapter_model", "unet/diffusion_pytorch_model.fp16.safetensors": "diffusion_pytorch_model",
		"adapter_models.safetensors": "model", "model.safetensors": "model", "": "model",
	} {
		require.Equal(t, want, stemOf(&source.Checkpoint{Files: []storage.File{{Name: file}}}), file)
	}
}

// A namedError is an error about a tensor, as package quant returns it.
type namedError struct{ name string }

func (e namedError) Error() string  { return fmt.Sprintf("tensor %q: no", e.name) }
func (e namedError) Tensor() string { return e.name }

// TestOfTensor names a tensor once.
func TestOfTensor(t *testing.T) {
	require.EqualError(t, ofTensor("x", errors.New("no")), `tensor "x": no`)
	require.EqualError(t, ofTensor("x", namedError{"x"}), `tensor "x": no`)
	require.EqualError(t, ofTensor("x", namedError{"y"}), `tensor "x": tensor "y": no`)
}
