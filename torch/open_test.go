package torch

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/stretchr/testify/require"
)

// zipped returns the files of a directory as a zip archive, whose files do not implement
// io.ReaderAt.
func zipped(t *testing.T, dir string) fs.FS {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())
	r := must(zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len())))
	return r
}

// TestFolders opens directories and files that PyTorch wrote: in the operating system, in an fs.FS,
// and in an fs.FS whose files are read into memory.
func TestFolders(t *testing.T) {
	const folders = "testdata/folders"
	for name, want := range map[string]string{
		"one": "one", "adapter": "adapter", "shards": "shards",
		"one/pytorch_model.bin":                   "one",
		"adapter/adapter_model.bin":               "adapter",
		"shards/pytorch_model.bin.index.json":     "shards",
		"shards/pytorch_model-00001-of-00002.bin": "one",
	} {
		var skipped []string
		o := Opener{Skip: func(name string, why error) {
			require.ErrorIs(t, why, errors.ErrUnsupported)
			skipped = append(skipped, name+": "+why.Error())
		}}
		for i, open := range []func() (*safetensors.File, error){
			func() (*safetensors.File, error) { return o.Open(filepath.Join(folders, filepath.FromSlash(name))) },
			func() (*safetensors.File, error) { return o.OpenFS(os.DirFS(folders), name) },
			func() (*safetensors.File, error) { return o.OpenFS(zipped(t, folders), name) },
		} {
			skipped = nil
			f := must(open())
			tensors := maps.Collect(f.Tensors())
			requireSame(t, filepath.Join(folders, want+".safetensors"), tensors, nil)
			if want == "shards" {
				require.Equal(t, []string{"complex: safetensors has no dtype for torch.complex128"}, skipped)
			}
			require.NoError(t, f.Close())
			if i < 2 {
				require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, slices.Collect(maps.Values(tensors))[0])), fs.ErrClosed)
			}
		}
	}
	_, err := Open(filepath.Join(folders, "shards"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, `pytorch_model-00002-of-00002.bin: entry "complex": safetensors has no dtype for torch.complex128`)
}

// TestShardsWithoutIndex: the files of a set are one model, a tensor in two of them is an error, and
// entries are skipped.
func TestShardsWithoutIndex(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"} {
		data := must(os.ReadFile(filepath.Join("testdata/folders/shards", name)))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("m-%05d-of-00002.bin", i+1)), data, 0o666))
	}
	skipped := 0
	o := Opener{Skip: func(string, error) { skipped++ }}
	f := must(o.Open(dir))
	tensors := maps.Collect(f.Tensors())
	require.Contains(t, tensors, "unlisted")
	delete(tensors, "unlisted") // the index lacks it
	requireSame(t, "testdata/folders/shards.safetensors", tensors, nil)
	require.Equal(t, 1, skipped)
	require.NoError(t, f.Close())
	require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, slices.Collect(maps.Values(tensors))[0])), fs.ErrClosed)
	require.ErrorContains(t, errorOf(Open(dir)), "m-00002-of-00002.bin: entry")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m-00002-of-00002.bin"), must(os.ReadFile(filepath.Join(dir, "m-00001-of-00002.bin"))), 0o666))
	require.ErrorContains(t, errorOf(o.Open(dir)), "duplicate tensor name")
}

// TestSkipInBrokenIndex: an index that breaks a rule is refused, even if entries of its files were
// skipped.
func TestSkipInBrokenIndex(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/folders/shards")))
	name := filepath.Join(dir, "pytorch_model.bin.index.json")
	index := strings.Replace(string(must(os.ReadFile(name))), `"weight_map": {`, `"weight_map": {"absent": "pytorch_model-00002-of-00002.bin",`, 1)
	require.NoError(t, os.WriteFile(name, []byte(index), 0o666))
	var skipped []string
	_, err := Opener{Skip: func(name string, _ error) { skipped = append(skipped, name) }}.Open(dir)
	require.ErrorContains(t, err, `"absent"`)
	require.Equal(t, []string{"complex"}, skipped)
}

// TestFindModel: which file of a directory is opened.
func TestFindModel(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		want  string
	}{
		"the model first":       {[]string{"a.bin", "adapter_model.bin", "pytorch_model.bin", "pytorch_model.bin.index.json"}, "pytorch_model.bin"},
		"then its index":        {[]string{"a.bin", "adapter_model.bin", "pytorch_model.bin.index.json"}, "pytorch_model.bin.index.json"},
		"then the adapter":      {[]string{"a.bin", "adapter_model.bin", "b.bin.index.json"}, "adapter_model.bin"},
		"the only other index":  {[]string{"a.bin", "b.bin", "c.bin.index.json"}, "c.bin.index.json"},
		"the only other file":   {[]string{"a.ckpt", "config.json", "model.safetensors"}, "a.ckpt"},
		"a file of diffusers":   {[]string{"a.bin", "diffusion_pytorch_model.bin"}, "diffusion_pytorch_model.bin"},
		"an index of diffusers": {[]string{"a.bin.index.json", "diffusion_pytorch_model.bin.index.json"}, "diffusion_pytorch_model.bin.index.json"},
		"beside an optimizer":   {[]string{"a.pt", "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"}, "a.pt"},
		"only an optimizer":     {[]string{"optimizer.pt", "rng_state_0.pth"}, "only the state of a training job is in it, no model"},
		"none of two":           {[]string{"a.pt", "b.pth"}, "no pytorch_model.bin in it, but several other files: \"a.pt\", \"b.pth\"; open"},
		"none of two indexes":   {[]string{"a.bin.index.json", "b.pth.index.json"}, "but several other files"},
		"nothing":               {[]string{"config.json", "model.safetensors.index.json"}, "no file of PyTorch in it (.bin, .pt, .pth, .ckpt)"},
		"safetensors":           {[]string{"config.json", "model.safetensors"}, `no file of PyTorch in it (.bin, .pt, .pth, .ckpt); package safetensors reads "model.safetensors"`},
		"a distributed one":     {[]string{".metadata", "__0_0.distcp"}, "; package dcp reads the distributed checkpoint"},
		"files of ranks":        {[]string{"model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"}, `it has the files of several ranks of a job, such as "model_world_size_2_rank_0.pt"; package dcp joins them`},
		"ranks of two jobs":     {[]string{"model_world_size_2_rank_0.pt", "model_world_size_4_rank_1.pt"}, "it has the files of several ranks"},
		"one rank of several":   {[]string{"a.pt", "model_rank_3.pt"}, "it has the files of several ranks"},
		"numbered, not ranks":   {[]string{"model_0.pt", "model_1.pt"}, "but several other files"},
		"a folder is no file":   {[]string{"pytorch_model.bin/x", "a.pt"}, "a.pt"},
		"before a variant":      {[]string{"d.bin", "d.fp16.bin", "d.fp16-00001-of-00002.bin"}, "d.bin"},
		"an index before one":   {[]string{"d.bin.index.fp16.json", "d.bin.index.json", "d.fp16-00001-of-00001.bin"}, "d.bin.index.json"},
		"a variant alone":       {[]string{"pytorch_model.fp16.bin", "config.json"}, "pytorch_model.fp16.bin"},
		"its index alone":       {[]string{"d.fp16-00001-of-00002.bin", "d.fp16-00002-of-00002.bin", "d.bin.index.fp16.json"}, "d.bin.index.fp16.json"},
		"none of two variants":  {[]string{"d.bf16.pt", "d.fp16.pt"}, "but several other files"},
		"shards":                {[]string{"a-00002-of-00002.bin", "a-00001-of-00002.bin", "training_args.bin"}, "a-00001-of-00002.bin,a-00002-of-00002.bin"},
		"shards of a variant":   {[]string{"d.fp16-00001-of-00002.bin", "d.fp16-00002-of-00002.bin"}, "d.fp16-00001-of-00002.bin,d.fp16-00002-of-00002.bin"},
		"a shard is missing":    {[]string{"a-00001-of-00003.bin", "a-00003-of-00003.bin"}, `1 of 3 shards is missing: "a-00002-of-00003.bin"`},
		"all but one missing":   {[]string{"a-00001-of-00003.bin"}, `2 of 3 shards are missing: "a-00002-of-00003.bin", "a-00003-of-00003.bin"`},
		"shards of two models":  {[]string{"a-00001-of-00001.bin", "b-00001-of-00001.bin"}, "but several other files"},
		"a shard twice":         {[]string{"a-00001-of-00001.bin", "a-000001-of-00001.bin"}, "but several other files"},
		"very many shards":      {[]string{"a-00001-of-99999.bin", "a-00002-of-99999.bin"}, "but several other files"},
		"case is as it is said": {[]string{"Pytorch_model.bin", "a.pt"}, "but several other files"},
		"none of twelve":        {strings.Split("a.pt b.pt c.pt d.pt e.pt f.pt g.pt h.pt i.pt j.pt k.pt l.pt", " "), `"i.pt", "j.pt", 2 more; open those`},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for _, file := range test.files {
				fsys["dir/"+file] = &fstest.MapFile{}
			}
			found, err := findModel(must(osfile.TreeOf(fsys, "dir")), "dir")
			if strings.Contains(test.want, " ") {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, strings.Join(found, ","))
		})
	}
}

// TestOtherKinds: the error for a file that torch.save did not make names the kind of the file, and
// the package that opens it.
func TestOtherKinds(t *testing.T) {
	var saved bytes.Buffer
	require.NoError(t, safetensors.Write(&saved, nil, map[string]string{"format": "pt"}))
	class := "ctorch.distributed.checkpoint.metadata\nMetadata\n)\x81}b."
	for content, want := range map[string]string{
		saved.String():      "not made by torch.save: this is a safetensors file, which package safetensors opens",
		saved.String()[:30]: "not made by torch.save: this is a safetensors file, which package safetensors opens",
		"version https://git-lfs.github.com/spec/v1": "not made by torch.save: this is a Git LFS pointer (git lfs pull fetches the content)",
		"<!DOCTYPE html>":                    "not made by torch.save: this is an HTML page",
		"GGUF\x03\x00\x00\x00\x00":           "not made by torch.save: this is a GGUF file",
		"\x02\x00\x00\x00\x00\x00\x00\x00[]": `not made by torch.save: it starts with "\x02\x00\x00\x00\x00\x00\x00\x00"`,
		"some text of nobody":                "not made by torch.save: this is text",
		"some\x00text of nobody":             `not made by torch.save: it starts with "some\x00tex"`,
		"\x80\x02" + class:                   "the .metadata of a distributed checkpoint; package dcp joins the folder that it is in",
	} {
		_, err := OpenFS(fstest.MapFS{"x.bin": {Data: []byte(content)}}, "x.bin")
		require.EqualError(t, err, "safetensors: open x.bin: "+want)
		require.ErrorAs(t, err, new(*safetensors.FormatError))
	}
}

// TestIndexRules: an index must obey the rules for indexes of safetensors. The same holds for the
// index of a variant.
func TestIndexRules(t *testing.T) {
	data := zipOf(t, dictOf(whole4))
	many := make(map[string]string)
	for i := range 10_001 {
		many[fmt.Sprint(i)] = fmt.Sprint(i, ".bin")
	}
	for name, test := range map[string]struct {
		weights map[string]string
		want    string
	}{
		"obeyed":        {map[string]string{"w": "a.bin"}, ""},
		"other tensor":  {map[string]string{"w": "a.bin", "v": "a.bin"}, `tensor "v": the index places it in shard "a.bin", which lacks it`},
		"outside":       {map[string]string{"w": "../a.bin"}, `shard "../a.bin" is not a local, slash-separated file name`},
		"absolute":      {map[string]string{"w": "/a.bin"}, "is not a local, slash-separated file name"},
		"10,001 shards": {many, "the index names more than 10000 shards"},
		"missing":       {map[string]string{"w": "b.bin"}, "b.bin"},
		"another kind":  {map[string]string{"w": "c.bin"}, "not made by torch.save"},
	} {
		t.Run(name, func(t *testing.T) {
			text := must(json.Marshal(map[string]any{"weight_map": test.weights}))
			for _, index := range []string{"m/x.bin.index.json", "m/x.bin.index.fp16.json"} {
				fsys := fstest.MapFS{index: {Data: text}, "m/a.bin": {Data: data}, "m/c.bin": {Data: []byte("text")}}
				for _, name := range []string{"m", index} {
					f, err := OpenFS(fsys, name)
					if test.want == "" {
						require.NoError(t, err)
						require.Equal(t, 1, f.Len())
						continue
					}
					require.ErrorContains(t, err, test.want)
					require.ErrorContains(t, err, "safetensors: open "+index+": ")
				}
			}
		})
	}
}

// TestErrors: an error names file, dict and tensor. It is a FormatError only if the bytes are at
// fault.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	beyond := tensorOf(storageOf(float4, "0", 4), 1, nums(4), nums(1))
	name := filepath.Join(dir, "a.pt")
	require.NoError(t, os.WriteFile(name, zipOf(t, "\x80\x02}"+str("model")+dictOf(beyond)[2:len(dictOf(beyond))-1]+"s."), 0o666))
	_, err := Open(name)
	require.EqualError(t, err, "safetensors: open "+name+`: dict "model": tensor "w": its last element ends at byte 20 of a storage of 16 bytes`)
	var broken *safetensors.FormatError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "w", broken.Tensor)

	_, err = Opener{Key: "ema"}.Open(name) // not a FormatError, because the key is at fault
	require.EqualError(t, err, "safetensors: open "+name+`: there is no "ema"; a key selects one of "model" (1 tensor)`)
	require.False(t, errors.As(err, &broken))

	_, err = Open(filepath.Join(dir, "b.pt"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, 1, strings.Count(err.Error(), "b.pt"))
	require.Error(t, errorOf(Open(dir+"/a.pt/x")))
	for want, err := range map[string]error{
		"open ../x: invalid argument: a name in an fs.FS is relative to its root, without empty, . or .. elements": errorOf(OpenFS(os.DirFS(dir), "../x")),
		"open .: the fs.FS is nil":         errorOf(OpenFS(nil, ".")),
		"the io.ReaderAt of a file is nil": errorOf(NewFile(nil, 0)),
		"a file of -1 bytes":               errorOf(NewFile(strings.NewReader(""), -1)),
	} {
		require.EqualError(t, err, "safetensors: "+want)
	}
	require.ErrorAs(t, errorOf(Keys(strings.NewReader("abc"), 3)), &broken)
}

// A failing reader fails after a number of reads.
type failing struct {
	io.ReaderAt
	left atomic.Int64
}

var errFailing = errors.New("failing")

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.left.Add(-1) < 0 {
		return 0, errFailing
	}
	return f.ReaderAt.ReadAt(p, off)
}

// TestFailingReader: whichever read fails, an error of the reader never becomes a FormatError.
func TestFailingReader(t *testing.T) {
	for _, name := range []string{"state_dict.pt", "compressed.pt", "legacy.pt", "big_endian.pt", "module.pt"} {
		data := must(os.ReadFile(filepath.Join("testdata", name)))
		for n := 0; ; n++ {
			require.Less(t, n, 1000)
			r := &failing{ReaderAt: bytes.NewReader(data)}
			r.left.Store(int64(n))
			f, err := NewFile(r, int64(len(data)))
			if err == nil {
				err = safetensors.Write(io.Discard, maps.Collect(f.Tensors()), nil)
			}
			if r.left.Load() >= 0 {
				require.NoError(t, err)
				break
			}
			require.ErrorIs(t, err, errFailing, "%s, read %d", name, n)
			require.False(t, errors.As(err, new(*safetensors.FormatError)), "%v", err)
		}
	}
}

// TestOnlyDict: without a key, the only dict that holds tensors is taken, however deep it is
// nested. If there are two, neither is taken.
func TestOnlyDict(t *testing.T) {
	w := whole4
	for name, test := range map[string]struct{ pickle, want string }{
		"one":          {entries(str("epoch"), num(1), str("a"), entries(str("w"), w)), "= w"},
		"deep":         {entries(str("a"), entries(str("b"), entries(str("w"), w), str("c"), entries())), "= w"},
		"numbered":     {entries(str("a"), entries(num(0), entries(str("w"), w), num(1), entries(str("w"), w))), "= 0.w 1.w"},
		"in a list":    {entries(str("a"), "]"+entries(str("w"), w)+"a"), "= 0.w"},
		"nested":       {entries(str("a"), entries(str("w"), w, str("b"), entries(str("v"), w))), "= b.v w"},
		"the same":     {entries(str("a"), entries(str("w"), w)+"q\x05", str("b"), "h\x05"), "= w"},
		"two":          {entries(str("a"), entries(str("w"), w), str("b"), entries(str("w"), w)), `no tensors at the top level; a key selects one of "a" (1 tensor), "b" (1 tensor)`},
		"top level":    {entries(str("a"), entries(str("w"), w), str("v"), w), "= a.w v"},
		"none":         {entries(str("a"), entries()), "no dict in it holds tensors"},
		"of pairs":     {"ccollections\nOrderedDict\n](U\x01w" + w + "\x86e\x85R", "= w"}, // pairs with strings that Python 2 wrote as bytes
		"only another": {entries(str("a"), entries(str("w"), "csome\nclass\n)\x81")), "no dict in it holds tensors"},
	} {
		t.Run(name, func(t *testing.T) { requireNames(t, test.pickle, test.want) })
	}
}

// TestAmbiguous: two entries with the same name are an error if either may be meant, even if one of
// them would be skipped.
func TestAmbiguous(t *testing.T) {
	w := whole4
	v := tensorOf(storageOf(float4, "0", 4), 1, nums(3), nums(1))
	for pickle, key := range map[string]string{
		entries(str("a.b"), entries(str("w"), w), str("a"), entries(str("b"), entries(str("w"), v))): "a.b",
		entries(str("a"), entries(num(1), entries(str("w"), w), num(1), entries(str("w"), v))):       "a.1",
		entries(str("a"), entries(num(1), w, str("1"), v)):                                           "a.1",
	} {
		_, err := openBytes(zipOf(t, "\x80\x02"+pickle+"."), key)
		require.ErrorContains(t, err, fmt.Sprintf("%q may be any of 2 entries", key))
	}
	requireKey := func(pickle, key string) {
		require.Len(t, must(openBytes(zipOf(t, "\x80\x02"+pickle+"."), key)).tensors, 1)
	}
	requireKey(entries(str("a.b"), num(1), str("a"), entries(str("b"), entries(str("w"), w))), "a.b")
	requireKey(entries(str("a.b"), entries(str("w"), w)+"q\x05", str("a"), entries(str("b"), "h\x05")), "a.b")

	object := "csome\nclass\n)\x81"
	for _, pickle := range []string{
		entries(str("a.b"), object, str("a"), entries(str("b"), w), str("w"), w),
		entries(str("a"), entries(str("b"), w), str("a.b"), object, str("w"), w),
	} {
		data := zipOf(t, "\x80\x02"+pickle+".")
		_, err := Opener{Skip: func(string, error) {}}.NewFile(bytes.NewReader(data), int64(len(data)))
		require.ErrorContains(t, err, `two entries are named "a.b"`)
	}
}

// TestModules: which objects count as modules, and which entries their state_dict has.
func TestModules(t *testing.T) {
	w := whole4
	module := func(items ...string) string { return "cm\nNet\n)\x81" + entries(items...) + "b" }
	parts := func(parameters, buffers, modules string) []string {
		return []string{str("training"), "\x88", str("_parameters"), parameters, str("_buffers"), buffers, str("_modules"), modules}
	}
	set := func(class, items string) []string { return []string{str("_non_persistent_buffers_set"), class + items} }
	const python2, python3, four = "c__builtin__\nset\n", "cbuiltins\nset\n", "\x8f("
	buffers := entries(str("a"), w, str("b"), w, str("c"), "N")
	quantized := func(class string) string {
		return "ctorch." + class + "\n)\x81" + entries(parts(entries(str("w"), w), "}", "}")...) + "b"
	}
	bytes := tensorOf(storageOf("torch\nByteStorage", "0", 16), 0, nums(4), nums(1))
	parameter := func(data, attributes string) string {
		return "ctorch._utils\n_rebuild_parameter_with_state\n(" + data + "\x89}" + attributes + "tR"
	}
	deep := module(parts(entries(str("w"), w), "}", "}")...)
	for range maxDepth + 2 {
		deep = module(parts("}", "}", entries(str("m"), deep))...)
	}
	for name, test := range map[string]struct{ pickle, want string }{
		"deep":                   {module(parts(entries(str("w"), w), "}", entries(str("m"), deep))...), "it is nested too deeply, or contains itself"},
		"a name is a tuple":      {module(append(parts("}", entries(str("a"), w, "N\x85", w), "}"), set(four, "N\x85\x90")...)...), `its key is a tuple of 1`},
		"parameters":             {module(parts(entries(str("w"), w, str("n"), "N"), "}", "}")...), "= w"},
		"buffers":                {module(parts("}", buffers, "}")...), "= a b"},
		"without some, 2":        {module(append(parts("}", buffers, "}"), set(python2, "]"+str("a")+"a\x85R")...)...), "= b"},
		"without some, 3":        {module(append(parts("}", buffers, "}"), set(python3, "]"+str("a")+"a\x85R")...)...), "= b"},
		"without some, 4":        {module(append(parts("}", buffers, "}"), set(four, str("b")+"\x90")...)...), "= a"},
		"without some, unknown":  {module(append(parts("}", buffers, "}"), set("cm\nset\n", ")R")...)...), `it holds an object of "m.Net"`},
		"parameters are kept":    {module(append(parts(entries(str("a"), w), entries(str("b"), w), "}"), set(four, str("a")+str("b")+"\x90")...)...), "= a"},
		"modules":                {module(parts(entries(str("w"), w), "}", entries(str("0"), module(parts(entries(str("w"), w), "}", "}")...), str("n"), "N", str("e"), module(parts("}", "}", "}")...)))...), "= 0.w w"},
		"ordered dicts":          {module(parts("ccollections\nOrderedDict\n]("+str("w")+w+"\x86e\x85R", "ccollections\nOrderedDict\n)R", "}")...), "= w"},
		"no tensor in one":       {module(parts(entries(str("w"), w), "}", entries(str("m"), module(parts(entries(str("x"), "csome\nclass\n)\x81"), "}", "}")...)))...), `entry "m.x": it is an object of "some.class"`},
		"quantized by PyTorch":   {module(parts(entries(str("w"), w), "}", entries(str("m"), module(parts("}", "}", entries(str("x"), quantized("ao.nn.quantized.dynamic.modules.linear\nLinear")))...)))...), `entry "m.x": it is a quantized module`},
		"quantized, before 1.13": {module(parts(entries(str("w"), w), "}", entries(str("x"), quantized("nn.quantized.modules.conv\nConv2d")))...), `entry "x": it is a quantized module`},
		"all of it quantized":    {quantized("ao.nn.quantized.modules.linear\nLinear"), `entry "tensor": it is a quantized module`},
		"quantized by HQQ":       {module(parts(entries(str("w"), w), "}", entries(str("x"), "chqq.core.quantize\nHQQLinear\n)\x81"+entries(parts(entries(str("W_q"), bytes), "}", "}")...)+"b"))...), `entry "x": it is a quantized module`},
		"not quantized yet":      {module(parts(entries(str("w"), w), "}", entries(str("x"), quantized("ao.nn.quantized.modules.functional_modules\nFloatFunctional")))...), "= w x.w"},
		"bitsandbytes":           {module(parts(entries(str("w"), parameter(w, entries(str("quant_state"), "csome\nclass\n)\x81")), str("v"), w), "}", "}")...), `whose attributes have the scales; save the state_dict`},
		"bitsandbytes, INT8":     {module(parts(entries(str("w"), parameter(bytes, "("+entries(str("SCB"), w)+"Nt")), "}", "}")...), `it holds an object of "m.Net", not tensors`},
		"attributes":             {module(parts(entries(str("w"), parameter(w, entries(str("tag"), num(1))), str("v"), parameter(bytes, "}")), "}", "}")...), "= v w"},
		"a name twice":           {module(parts(entries(str("w"), w), entries(str("w"), w), "}")...), `two entries are named "w"`},
		"no tensor":              {module(parts(entries(str("w"), num(1), str("v"), w), "}", "}")...), "= v"},
		"an object in it":        {module(parts(entries(str("w"), w, str("x"), "cos\nsystem\n"+str("touch executed")+"\x85R"), "}", "}")...), `entry "x": it is an object of "os.system"`},
		"itself":                 {"cm\nNet\n)\x81q\x07" + entries(parts(entries(str("w"), w), "}", entries(str("m"), "h\x07"))...) + "b", "it is nested too deeply, or contains itself"},
		"no buffers":             {module(str("_parameters"), entries(str("w"), w), str("_modules"), "}"), `it holds an object of "m.Net"`},
		"parameters are no dict": {module(parts("]", "}", "}")...), `it holds an object of "m.Net"`},
		"state is a tuple":       {"cm\nNet\n)\x81" + entries(parts(entries(str("w"), w), "}", "}")...) + "}\x86b", `it holds an object of "m.Net"`},
		"empty":                  {module(parts("}", "}", "}")...), `it holds an object of "m.Net", not tensors`},
	} {
		t.Run(name, func(t *testing.T) { requireNames(t, test.pickle, test.want) })
	}
	require.NoFileExists(t, "executed")
}

// TestMemory: an open file of many small tensors takes at most ten bytes of memory for each byte of
// the file.
func TestMemory(t *testing.T) {
	var items strings.Builder
	items.WriteString("\x80\x02}(")
	for i := range 20_000 {
		items.WriteString(str(fmt.Sprint("layers.", i, ".self_attention.query.weight")))
		items.WriteString(tensorOf(storageOf(float4, "0", 4), 0, nums(2, 2), nums(2, 1)))
	}
	data := zipOf(t, items.String()+"u.")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := must(NewFile(bytes.NewReader(data), int64(len(data))))
	require.Equal(t, 20_000, f.Len())
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(10*len(data)))
	runtime.KeepAlive(f)
	runtime.KeepAlive(data)
	runtime.KeepAlive(&items)
}
