package torch

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestViewsOfStorages: in old files, a storage may be a view of another one. It must lie within
// that one.
func TestViewsOfStorages(t *testing.T) {
	open := func(view string, offset int64, n int64) (*held, error) {
		s := "(" + str("storage") + "c" + float4 + "\n" + str("0") + str("cpu") + num(4) + view + "tQ"
		c, err := openBytes(zipOf(t, dictOf(tensorOf(s, offset, nums(n), nums(1)))), "")
		if err == nil {
			err = c.refused["w"]
		}
		return c, err
	}
	view := func(key string, offset, size int64) string { return "(" + key + num(offset) + num(size) + "t" }
	for want, c := range map[string]struct {
		view      string
		offset, n int64
	}{
		"0123456789abcdef": {"N", 0, 4},
		"0123":             {view(str("v"), 0, 4), 0, 1},
		"456789abcdef":     {view(str("v"), 1, 3), 0, 3},
		"89abcdef":         {view(str("v"), 1, 2), 1, 2},
		"":                 {view(str("v"), 4, 0), 0, 0},
	} {
		x := must(open(c.view, c.offset, c.n)).tensors["w"]
		require.Equal(t, want, string(must(safetensors.Append[byte](nil, x))))
	}
	long := "X\xe8\x03\x00\x00" + strings.Repeat("v", 1000)
	must(open(view(long, 0, 4), 0, 4))
	for _, bad := range []string{
		num(1), "(t", "(" + str("v") + num(0) + "t", "(" + str("v") + num(0) + num(4) + num(4) + "t",
		view(num(1), 0, 4), view(str(""), 0, 4), view("X\xe9\x03\x00\x00"+strings.Repeat("v", 1001), 0, 4),
		"(" + str("v") + str("0") + num(4) + "t", "(" + str("v") + num(0) + str("4") + "t",
		view(str("v"), -1, 4), view(str("v"), 0, -1), view(str("v"), 0, 5), view(str("v"), 1, 4), view(str("v"), 5, 0),
	} {
		require.ErrorContains(t, errorOf(open(bad, 0, 1)), "a storage whose view is invalid", "%q", bad)
	}
	// The elements of a view may have another dtype only if that has the same width.
	other := func(storage, dtype string, offset int64) error {
		s := "(" + str("storage") + "ctorch\n" + storage + "\n" + str("0") + str("cpu") + num(4) + view(str("v"), offset, 1) + "tQ"
		return refusal(zipOf(t, dictOf("ctorch._utils\n_rebuild_tensor_v3\n("+s+num(0)+nums(1)+nums(1)+"\x89}ctorch\n"+dtype+"\ntR")))
	}
	require.NoError(t, other("FloatStorage", "int32", 1))
	require.NoError(t, other("FloatStorage", "int16", 0))
	require.ErrorContains(t, other("FloatStorage", "int16", 1), "a view of a storage of other elements than torch.int16")
}

// TestArguments: which arguments the functions that make tensors and parameters accept.
func TestArguments(t *testing.T) {
	s := storageOf(float4, "0", 4)
	with := func(extra string) string { return strings.TrimSuffix(whole4, "tR") + extra + "tR" }
	typed := func(dtype string) string {
		return "ctorch._utils\n_rebuild_tensor_v3\n(" + s + num(0) + nums(4) + nums(1) + "\x89}" + dtype + "tR"
	}
	parameter := func(extra string) string {
		return "ctorch._utils\n_rebuild_parameter_with_state\n(" + whole4 + "\x89}" + extra + "tR"
	}
	old := "ctorch.nn.parameter\nParameter\n" + whole4 + "\x85\x81"
	for v, want := range map[string]string{
		with("N"):                            "",
		with("}"):                            "",
		with(entries(str("conj"), "\x89")):   `the bit "conj"`, // PyTorch only checks whether the key exists
		with(num(1)):                         "an int instead of the metadata of a tensor",
		with(entries(str("neg"), "\x88")):    `the tensor has the bit "neg"`,
		tensorOf(s, 0, nums(4), "]"):         "its strides: a list of 0 instead of a tuple of integers",
		tensorOf(s, 0, nums(4), num(1)):      "its strides: an int",
		typed("ctorch\nint32\n"):             "",
		typed("ctorch\nint33\n"):             `the class or function "torch.int33" is not a dtype`,
		typed("cother\nint32\n"):             `the class or function "other.int32" is not a dtype`,
		typed(num(1)):                        "an int is not a dtype",
		parameter("N"):                       "",
		parameter("NN\x86"):                  "",
		parameter("}N\x86"):                  "",
		parameter("N}\x86"):                  "",
		parameter(")"):                       "",
		parameter(num(1)):                    "its attributes are an int",
		parameter("}" + num(1) + "\x86"):     "its attributes are an int",
		parameter(entries(str("a"), num(1))): "",
		parameter(entries(str("imag"), "N")): `a parameter with an attribute "imag", which changes its elements`,
		parameter("N" + entries(str("__class__"), "N") + "\x86"): `a parameter with an attribute "__class__"`,

		// The state of a Parameter of PyTorch up to 0.3: requires_grad, volatile, hooks.
		old + "(\x88\x89}tb":            "",
		old + "(\x88}tb":                "",
		old + "(\x88tb":                 "setting attributes of a tensor",
		old + "(\x88\x89}Ntb":           "setting attributes of a tensor",
		old + "(K\x01\x89}tb":           "setting attributes of a tensor",
		parameter("}") + "(\x88\x89}tb": "setting attributes of a tensor",
		whole4 + "(\x88\x89}tb":         "setting attributes of a tensor",
	} {
		err := refusal(zipOf(t, "\x80\x02"+entries(str("t"), whole4, str("p"), v)+"."))
		if want == "" {
			require.NoError(t, err, "%q", v)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// TestPairs: 4-bit floats, which PyTorch stores in pairs, are read even if the pairs of a row are
// not adjacent.
func TestPairs(t *testing.T) {
	pairs := func(shape, strides string) string {
		return "ctorch._utils\n_rebuild_tensor_v3\n(" + storageOf("torch.storage\nUntypedStorage", "0", 16) + num(0) + shape + strides + "\x89}ctorch\nfloat4_e2m1fn_x2\ntR"
	}
	for want, v := range map[string]string{"0123": pairs(nums(2, 2), nums(2, 1)), "0213": pairs(nums(2, 2), nums(1, 2)), "048c": pairs(nums(2, 2), nums(8, 4))} {
		x := must(openBytes(zipOf(t, dictOf(v)), "")).tensors["w"]
		require.Equal(t, "F4 [2,4]", x.String())
		require.Equal(t, want, string(must(safetensors.Append[byte](nil, x))))
	}
}

// TestAdviceOnKeys: the error for an invalid key lists ten dicts and the number of the others, or
// says that no key is needed.
func TestAdviceOnKeys(t *testing.T) {
	open := func(n int) error {
		var dicts []string
		for i := range n {
			dicts = append(dicts, str(fmt.Sprint("d", i)), entries(str("w"), whole4))
		}
		return errorOf(openBytes(zipOf(t, "\x80\x02"+entries(dicts...)+"."), "x"))
	}
	require.ErrorContains(t, open(10), `"d8" (1 tensor), "d9" (1 tensor)`)
	require.NotContains(t, open(10).Error(), "more")
	require.ErrorContains(t, open(11), `"d9" (1 tensor), 1 more`)
	require.ErrorContains(t, open(12), `"d9" (1 tensor), 2 more`)
	require.NotContains(t, open(12).Error(), "d10")
	const alone = "its tensors are at the top level, which needs no key"
	require.ErrorContains(t, errorOf(openBytes(zipOf(t, dictOf(whole4)), "x")), alone)
	require.ErrorContains(t, errorOf(openBytes(zipOf(t, "\x80\x02"+whole4+"."), "x")), alone)
	require.ErrorContains(t, errorOf(openBytes(zipOf(t, "\x80\x02}."), "x")), "no dict in it holds tensors")
}

// TestFolderName: the name of the folder in an archive may have up to 1,000 bytes.
func TestFolderName(t *testing.T) {
	for n, want := range map[int]string{1000: "", 1001: "a zip archive whose folder has a name of 1001 bytes"} {
		err := refusal(zipIn(t, strings.Repeat("n", n)))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// zipIn returns a file of torch.save whose members are in this folder.
func zipIn(t *testing.T, folder string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range map[string]string{"/data.pkl": dictOf(whole4), "/data/0": "0123456789abcdef"} {
		must(must(w.CreateHeader(&zip.FileHeader{Name: folder + name, Method: zip.Store})).Write([]byte(content)))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// unlistable is a file system whose directories cannot be listed.
type unlistable struct{ fs.FS }

func (unlistable) ReadDir(string) ([]fs.DirEntry, error) { return nil, errFailing }

// TestFolderErrors: an error about a directory or an index names it.
func TestFolderErrors(t *testing.T) {
	fsys := fstest.MapFS{"dir/README.md": {}}
	require.ErrorContains(t, errorOf(OpenFS(fsys, "dir")), "safetensors: open dir: no file of PyTorch in it")
	require.ErrorIs(t, errorOf(OpenFS(fsys, "dir")), fs.ErrNotExist)
	err := errorOf(OpenFS(unlistable{fsys}, "dir"))
	require.ErrorIs(t, err, errFailing)
	require.ErrorContains(t, err, "dir")
	require.ErrorIs(t, errorOf(OpenFS(fsys, "x.bin.index.json")), fs.ErrNotExist)
	require.ErrorContains(t, errorOf(OpenFS(fsys, "x.bin.index.json")), "x.bin.index.json")
	require.ErrorContains(t, errorOf(Keys(strings.NewReader(""), -1)), "a file of -1 bytes")
}
