package torch

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// zipOf returns a file of torch.save with this pickle, a storage "0" of 16 bytes, and further
// members.
func zipOf(t testing.TB, pickle string, more ...[2]string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range append([][2]string{{"a/data.pkl", pickle}, {"a/data/0", "0123456789abcdef"}}, more...) {
		f := must(w.CreateHeader(&zip.FileHeader{Name: m[0], Method: zip.Store}))
		must(f.Write([]byte(m[1])))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// str, num and call write parts of pickles.
func str(s string) string { return "\x8c" + string(rune(len(s))) + s }
func num(n int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}
func nums(n ...int64) string {
	s := "("
	for _, n := range n {
		s += num(n)
	}
	return s + "t"
}

// storageOf pickles a storage, tensorOf a call that makes a tensor of a storage, and dictOf a dict
// that holds a value under the key w.
func storageOf(class, key string, numel int64) string {
	return "(" + str("storage") + "c" + class + "\n" + str(key) + str("cpu") + num(numel) + "tQ"
}

func tensorOf(storage string, offset int64, shape, strides string) string {
	return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + num(offset) + shape + strides + "\x89}tR"
}

// whole4 is a pickled tensor with all four elements of the storage.
var whole4 = tensorOf(storageOf(float4, "0", 4), 0, nums(4), nums(1))

// entries pickles a dict of keys and values.
func entries(items ...string) string { return "}(" + strings.Join(items, "") + "u" }

func dictOf(v string) string { return "\x80\x02}" + str("w") + v + "s." }

const float4 = "torch\nFloatStorage"

// TestHostilePickle: pickles that call functions, or lie about storages, are refused by name.
func TestHostilePickle(t *testing.T) {
	const reduce = "ccollections\nOrderedDict\n"
	s := storageOf(float4, "0", 4)
	large := tensorOf(s, 0, nums(1<<27), nums(0))
	for name, test := range map[string]struct{ pickle, want string }{
		"instance":                    {"(cos\nsystem\no.", `it holds an object of "os.system", not tensors`},
		"newobj":                      {"csubprocess\nPopen\n)\x81.", `it holds an object of "subprocess.Popen", not tensors`},
		"newobj of arguments by name": {"csubprocess\nPopen\n)}\x92.", `it holds an object of "subprocess.Popen", not tensors`},
		"call of a call":              {"cos\nsystem\n)R)R.", `it holds an object of "os.system", not tensors`},
		"system":                      {"cos\nsystem\n(" + str("id") + "tR.", `it holds an object of "os.system", not tensors; save the state dict alone`},
		"stack global":                {str("builtins") + str("eval") + "\x93.", `it holds the class or function "builtins.eval", not tensors`},
		"dotted name":                 {str("torch._utils") + str("_rebuild_tensor_v2.__globals__") + "\x93)R.", `an object of "torch._utils._rebuild_tensor_v2.__globals__"`},
		"module with a dot":           {"ctorch\n_utils._rebuild_tensor_v2\n)R.", `an object of "torch._utils._rebuild_tensor_v2"`},
		"torch.load":                  {"ctorch\nload\n)R.", `an object of "torch.load"`},
		"call of a dict":              {"})R.", "calling a dict with 0 entries with a tuple of 0"},
		"call of a dtype":             {"ctorch\nfloat32\n)R.", `an object of "torch.float32"`},
		"build of a tensor":           {tensorOf(s, 0, nums(4), nums(1)) + "}b.", "setting attributes of a tensor"},
		"bytes":                       {dictOf("C\x01a"), `no tensors at the top level`},
		"persistent text":             {dictOf(tensorOf(str("storage")+"Q", 0, nums(4), nums(1))), "a persistent id that is not a storage"},
		"persistent module":           {dictOf(tensorOf("("+str("module")+reduce+"NNNtQ", 0, nums(4), nums(1))), "a persistent id that is not a storage"},
		"storage of a dtype":          {dictOf(tensorOf(storageOf("torch\nfloat32", "0", 4), 0, nums(4), nums(1))), "torch.float32 is not a class of storages"},
		"storage of a function":       {dictOf(tensorOf(storageOf("collections\nOrderedDict", "0", 4), 0, nums(4), nums(1))), "collections.OrderedDict is not a class of storages"},
		"view of other elements": {dictOf("ctorch._utils\n_rebuild_tensor_v3\n((" + str("storage") + "ctorch\nByteStorage\n" + str("0") + str("cpu") + num(16) +
			"(" + str("v") + num(4) + num(8) + "ttQ" + num(0) + nums(1) + nums(1) + "\x89}ctorch\nfloat32\ntR"), "a view of a storage of other elements than torch.float32"},
		"view at 1 of other elements": {dictOf("ctorch._utils\n_rebuild_tensor_v3\n((" + str("storage") + "ctorch\nByteStorage\n" + str("0") + str("cpu") + num(16) +
			"(" + str("v") + num(1) + num(8) + "ttQ" + num(0) + nums(1) + nums(1) + "\x89}ctorch\nfloat32\ntR"), "a view of a storage of other elements than torch.float32"},
		"storage of another module":   {dictOf(tensorOf(storageOf("other\nFloatStorage", "0", 4), 0, nums(4), nums(1))), "other.FloatStorage is not a class of storages"},
		"negative size":               {dictOf(tensorOf(storageOf(float4, "0", -1), 0, nums(4), nums(1))), "a storage whose class, key, device or size is invalid"},
		"tensor of a dict":            {dictOf(tensorOf("}", 0, nums(4), nums(1))), "its storage or its offset is invalid"},
		"shape as list":               {dictOf(tensorOf(s, 0, "]", nums(1))), "its shape: a list of 0 instead of a tuple of integers"},
		"shape of strings":            {dictOf(tensorOf(s, 0, "("+str("4")+"t", nums(1))), "its shape: a string instead of an integer"},
		"huge dimension":              {dictOf(tensorOf(s, 0, "(\x8a\x09"+strings.Repeat("\x01", 9)+"t", nums(1))), "its shape: an int instead of an integer"},
		"few arguments":               {dictOf("ctorch._utils\n_rebuild_tensor_v2\n)R"), "0 arguments, 6 are expected"},
		"many arguments":              {dictOf(strings.TrimSuffix(whole4, "tR") + "NNtR"), "8 arguments, 6 are expected"},
		"many arguments, old":         {dictOf("ctorch._utils\n_rebuild_tensor\n(" + s + num(0) + nums(4) + nums(1) + "\x89tR"), "5 arguments, 4 are expected"},
		"parameter of a dict":         {dictOf(tensorOf(s, 0, nums(4), nums(1)) + "s" + str("p") + "ctorch._utils\n_rebuild_parameter\n}\x85R"), "torch._utils._rebuild_parameter: its argument is not a tensor"},
		"parameter of nothing":        {"ctorch._utils\n_rebuild_parameter\n)R.", `an object of "torch._utils._rebuild_parameter"`},
		"size of a string":            {"ctorch\nSize\n" + str("4") + "\x85R.", `an object of "torch.Size"`},
		"untyped tensor":              {dictOf(tensorOf(storageOf("torch.storage\nUntypedStorage", "0", 16), 0, nums(4), nums(1))), "an untyped storage without a dtype"},
		"65 dimensions":               {dictOf(tensorOf(s, 0, nums(make([]int64, 65)...), nums(make([]int64, 65)...))), "its shape: 65 dimensions, at most 64 are read"},
		"storage missing":             {dictOf(tensorOf(storageOf(float4, "1", 4), 0, nums(4), nums(1))), `tensor "w": the archive has no storage "1"`},
		"storage outside":             {dictOf(tensorOf(storageOf(float4, "../data.pkl", 4), 0, nums(4), nums(1))), `the archive has no storage "../data.pkl"`},
		"storage on meta":             {dictOf(tensorOf(strings.Replace(s, str("cpu"), str("meta"), 1), 0, nums(4), nums(1))), `it is on the meta device and has no data`},
		"storage larger":              {dictOf(tensorOf(storageOf(float4, "0", 5), 0, nums(4), nums(1))), `storage "0" has 16 bytes, not 5 elements of 4 bytes`},
		"storage of another size":     {dictOf(tensorOf(storageOf("torch\nDoubleStorage", "0", 4), 0, nums(4), nums(1))), `storage "0" has 16 bytes, not 4 elements of 8 bytes`},
		"beyond the storage":          {dictOf(tensorOf(s, 1, nums(4), nums(1))), `tensor "w": its last element ends at byte 20 of a storage of 16 bytes`},
		"strides beyond":              {dictOf(tensorOf(s, 0, nums(2, 2), nums(3, 1))), "its last element ends at byte 20"},
		"negative stride":             {dictOf(tensorOf(s, 3, nums(4), nums(-1))), "its strides overflow"},
		"huge stride":                 {dictOf(tensorOf(s, 0, nums(2), nums(1<<62))), "its strides overflow"},
		"negative offset":             {dictOf(tensorOf(s, -1, nums(1), nums(1))), "its offset overflows"},
		"huge offset":                 {dictOf(tensorOf(s, 1<<62, nums(1), nums(1))), "its offset overflows"},
		"negative dimension":          {dictOf(tensorOf(s, 0, nums(-1), nums(1))), "dimension 0 has size -1"},
		"strides missing":             {dictOf(tensorOf(s, 0, nums(4), nums())), "0 strides for 1 dimensions"},
		"expanded to an overflow":     {dictOf(tensorOf(s, 0, nums(1<<30, 1<<30, 1<<30), nums(0, 0, 0))), "its size overflows 64 bits"},
		"too large together":          {"\x80\x02" + entries(str("a"), large, str("b"), large, str("c"), large) + ".", `tensor "c": F32 [134217728] is too large for this file`}, // a and b alone are not too large
		"expanded to terabytes":       {dictOf(tensorOf(s, 0, nums(1<<20, 1<<20), nums(0, 0))), "its tensors repeat the same data too often"},
		"expanded dimension overflow": {dictOf(tensorOf(s, 0, nums(1<<30, 0), nums(1<<62, 0))), "its strides overflow"},
		"long key of a storage":       {dictOf(tensorOf(strings.Replace(s, str("0"), "X\xe9\x03\x00\x00"+strings.Repeat("0", 1001), 1), 0, nums(4), nums(1))), "a storage whose class, key, device or size is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			data := zipOf(t, test.pickle)
			require.Less(t, testplatform.Allocated(func() { require.ErrorContains(t, refusal(data), test.want) }), uint64(1<<20))
		})
	}
}

// refusal returns the error of opening a file, or the reason why an entry is left out.
func refusal(data []byte) error {
	c, err := openBytes(data, "")
	if err == nil {
		for _, err = range c.refused {
		}
	}
	return err
}

// TestBombs opens small pickles that would expand to much, and cyclic ones. If a module with few
// entries is referenced many times, the search through it is bounded, and so is the search through
// the names of the buffers that it leaves out.
func TestBombs(t *testing.T) {
	laughs := "]q\x000" // each list contains the list before ten times, 200 levels deep
	for range 200 {
		laughs += "](h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00h\x00eq\x000"
	}
	laughs += "h\x00"
	deepTuples := "N" + strings.Repeat("\x85", 1_000_000)
	deepDicts := "}q\x00" + strings.Repeat("}"+str("a")+"h\x00sq\x00", 100_000)
	dicts := "}q\x000" // each dict contains the dict before forty times, 200 levels deep
	for range 200 {
		dicts += "}("
		for i := range 40 {
			dicts += str(fmt.Sprint(i)) + "h\x00"
		}
		dicts += "uq\x000"
	}
	const many = 1 << 18
	modules := func(places int, parameters, buffers, without string) string {
		return "\x80\x02cm\nNet\n)\x81" + entries(str("_parameters"), parameters, str("_buffers"), buffers, str("_modules"), "}",
			str("_non_persistent_buffers_set"), "\x8f("+without+"\x90") + "bq\x000](" + strings.Repeat("h\x00", places) + "e."
	}
	one := entries(str("w"), whole4)
	// 20,000 modules share one state, which has a set of 100,000 names (0) or a dict with as many
	// entries (1).
	shared := func(state string) string {
		var names, parameters strings.Builder
		for i := range 100_000 {
			name := str(fmt.Sprintf("%05x", i))
			names.WriteString(name)
			parameters.WriteString(name + "N")
		}
		return "\x80\x04\x8f(" + names.String() + "\x90q\x000}(" + parameters.String() + "uq\x010" + state + "q\x02cm\nNet\nq\x030](" + strings.Repeat("h\x03)\x81h\x02b", 20_000) + "e."
	}
	for name, test := range map[string]struct{ pickle, want string }{
		"laughing dicts": {dictOf(dicts + "h\x00"), "no tensors at the top level; no dict in it holds tensors"},
		"billion laughs": {dictOf(laughs), "no tensors at the top level; no dict in it holds tensors"},
		"laughing keys":  {"\x80\x02}" + laughs + "\x85Ns.", "no tensors at the top level; no dict in it holds tensors"},
		"deep tuples":    {dictOf(deepTuples), "no tensors at the top level; no dict in it holds tensors"},
		"deep dicts":     {"\x80\x02" + deepDicts + ".", "no tensors at the top level; no dict in it holds tensors"},
		"cycle":          {"\x80\x02}q\x00" + str("a") + "h\x00s.", "no tensors at the top level; no dict in it holds tensors"},
		"own key":        {"\x80\x02]q\x00h\x00a\x85}" + "h\x00\x85Ns.", "no tensors at the top level"},
		"many opcodes":   {"\x80\x02" + strings.Repeat("}0", 1<<21+10), "more than 4194304 opcodes"},
		"many dicts":     {"\x80\x02" + strings.Repeat("}", 1<<22+10), "more than 4194304 opcodes"},
		"modules":        {modules(many, entries(strings.Repeat("K\x01N", many), str("w"), whole4), "}", ""), "its entries repeat the same containers too often"},
		"names left out": {modules(many, "}", one, strings.Repeat("K\x01", many)), "its entries repeat the same containers too often"},
		"shared names":   {shared(entries(str("_non_persistent_buffers_set"), "h\x00", str("_parameters"), "}", str("_buffers"), "}", str("_modules"), "}")), "no tensors at the top level; no dict in it holds tensors"},
		"shared parts":   {shared(entries(str("_parameters"), "h\x01", str("_buffers"), "}", str("_modules"), "}")), "its entries repeat the same containers too often"},
		"buffers":        {modules(1, one, entries(strings.Repeat("K\x01K\x01", many)), strings.Repeat("K\x02", many)), `two entries are named "0.1"`},
	} {
		t.Run(name, func(t *testing.T) {
			data := zipOf(t, test.pickle)
			require.Less(t, testplatform.Allocated(func() { require.ErrorContains(t, errorOf(openBytes(data, "")), test.want) }), uint64(1<<30))
		})
	}
	// A key of the user may lead through a cycle. The search ends with the key.
	require.ErrorContains(t, errorOf(openBytes(zipOf(t, "\x80\x02}q\x00"+str("a")+"h\x00s."), strings.Repeat("a.", 20)+"b")), "there is no ")
}

// legacyOf returns a legacy file with these pickles and this data.
func legacyOf(object, keys, data string) []byte {
	return []byte("\x80\x02\x8a\x0a" + string(legacyMagic) + ".\x80\x02M\xe9\x03.\x80\x02}." + object + keys + data)
}

// TestHostileLegacy: legacy files with false descriptions of storages or views are refused, with
// the reason.
func TestHostileLegacy(t *testing.T) {
	s := "(" + str("storage") + "c" + float4 + "\n" + str("0") + str("cpu") + num(1) + "NtQ"
	object := dictOf(tensorOf(s, 0, nums(1), nums(1)))
	view := "(" + str("storage") + "c" + float4 + "\n" + str("0") + str("cpu") + num(2) + "(" + str("v") + num(1) + num(1) + "ttQ"
	const keys = "\x80\x02]\x8c\x010a."
	const count = "\x01\x00\x00\x00\x00\x00\x00\x00"
	for name, test := range map[string]struct{ object, keys, data, want string }{
		"valid":              {object, keys, count + "abcd", ""},
		"view":               {dictOf(tensorOf(view, 0, nums(1), nums(1))), keys, "\x02" + count[1:] + "abcdefgh", ""},
		"view beyond":        {dictOf(tensorOf(view, 1, nums(1), nums(1))), keys, "\x02" + count[1:] + "abcdefgh", "its last element ends at byte 12 of a storage of 8 bytes"},
		"truncated":          {object, keys, count + "abc", `storage "0" claims 1 elements of 4 bytes, the file has 3 bytes left: unexpected EOF`},
		"no data":            {object, keys, "", `storage "0" starts at the end of the file`},
		"negative count":     {object, keys, strings.Repeat("\xff", 8), `storage "0" claims -1 elements`},
		"huge count":         {object, keys, strings.Repeat("\xff", 7) + "\x3f", `claims 4611686018427387903 elements`},
		"another count":      {object, keys, "\x02" + count[1:] + "abcdefgh", `storage "0" has 8 bytes, not 1 elements of 4 bytes`},
		"bytes after":        {object, keys, count + "abcde", "1 byte after the last storage"},
		"unknown key":        {object, "\x80\x02]\x8c\x011a.", count + "abcd", `the key of a storage is unknown or a duplicate: "1"`},
		"duplicate key":      {object, "\x80\x02](\x8c\x010\x8c\x010e.", count + "abcd", `the key of a storage is unknown or a duplicate: "0"`},
		"storage not listed": {object, "\x80\x02].", "", `the file has no storage "0"`},
		"keys are no list":   {object, "\x80\x02}.", "", "the keys of the storages are a dict with 0 entries, not a list"},
		"class with source":  {"\x80\x02(" + str("module") + "cm\nNet\n" + str("net.py") + str("class Net: pass") + "tQ)\x81.", "\x80\x02].", "", `it holds an object of "m.Net", not tensors`},
		"storage in keys":    {object, "\x80\x02" + s + ".", "", "the keys of the storages are a storage without a tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := openBytes(legacyOf(test.object, test.keys, test.data), "")
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			b := make([]byte, 4)
			must(c.tensors["w"].ReadAt(b, 0))
			require.Equal(t, test.data[len(test.data)-4:], string(b))
		})
	}
	header := legacyOf("", "", "")
	require.ErrorContains(t, errorOf(openBytes(header[:len(header)-1], "")), "at byte 24: no byte is left: unexpected EOF")
}

// TestEverySmallChange: each prefix of a file is refused, and no changed byte makes
// Open or a read panic.
func TestEverySmallChange(t *testing.T) {
	for _, name := range []string{"state_dict", "legacy4"} {
		data := must(os.ReadFile(filepath.Join("testdata", name+".pt")))
		for n := range data {
			require.Error(t, errorOf(openBytes(data[:n], "")), "%s, %d bytes", name, n)
			for _, flip := range []byte{0x01, 0x80} {
				changed := bytes.Clone(data)
				changed[n] ^= flip
				readSome(changed)
			}
		}
	}
}

// readSome opens a file, and reads the first bytes of its tensors.
func readSome(data []byte) {
	c, err := openBytes(data, "")
	if err != nil {
		return
	}
	b := make([]byte, 1000)
	for _, t := range c.tensors {
		t.ReadAt(b, 0)
		t.ReadAt(b, max(0, t.Size()-500))
	}
}

// FuzzTorch: no file makes the reader panic, neither when it is opened nor when it is read.
func FuzzTorch(f *testing.F) {
	for _, name := range append(must(filepath.Glob("testdata/*.pt")), must(filepath.Glob("testdata/refused/*.pt"))...) {
		f.Add(must(os.ReadFile(name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) { readSome(data) })
}

// FuzzPickle fuzzes the pickle in a file, with a storage next to it.
func FuzzPickle(f *testing.F) {
	s := storageOf(float4, "0", 4)
	f.Add([]byte(dictOf(tensorOf(s, 0, nums(4), nums(1)))))
	f.Add([]byte(dictOf(tensorOf(s, 0, nums(2, 2), nums(1, 2)))))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94G?\xf0\x00\x00\x00\x00\x00\x00u."))
	for _, name := range must(filepath.Glob("testdata/*.pt")) {
		if r, err := zip.OpenReader(name); err == nil { // the file is not a legacy file
			for _, member := range must(fs.Glob(r, "*/data.pkl")) {
				f.Add(must(fs.ReadFile(r, member)))
			}
			require.NoError(f, r.Close())
		}
	}
	payload := str("touch executed") + "\x85"
	f.Add([]byte(dictOf("cos\nsystem\n" + payload + "R")))
	f.Add([]byte(dictOf("cos\nsystem\n" + payload + "\x81}b")))
	f.Add([]byte(dictOf("(ios\nsystem\n(" + str("a") + "Ne" + "Nub")))
	f.Add([]byte(dictOf("(cos\nsystem\n" + str("touch executed") + "o")))
	f.Add([]byte(dictOf("csubprocess\nPopen\n" + payload + "}\x92(" + str("a") + "\x90")))
	f.Fuzz(func(t *testing.T, pickle []byte) {
		readSome(zipOf(t, string(pickle)))
		require.NoFileExists(t, "executed")
	})
}

// TestOtherReaders: a file from which torch.load would read other weights than this package is
// refused.
func TestOtherReaders(t *testing.T) {
	one := dictOf(whole4)
	second := [2]string{"a/data/1", "fedcba9876543210"}
	other := tensorOf(storageOf(float4, "1", 4), 0, nums(4), nums(1))
	parameter := func(state string) string {
		return "ctorch._utils\n_rebuild_parameter_with_state\n(" + whole4 + "\x89}" + state + "tR"
	}
	beside := func(v string) []byte { return zipOf(t, "\x80\x02"+entries(str("t"), whole4, str("p"), v)+".", second) }
	oldParameter := "ctorch.nn.parameter\nParameter\n" + whole4 + "\x85\x81"
	const keys = "\x80\x02]\x8c\x010a."
	eight := num(8)[2:] + strings.Repeat("abcd", 8)
	old := func(class, view string) string {
		return "(" + str("storage") + "c" + class + "\n" + str("0") + str("cpu") + num(8) + view + "tQ"
	}
	view := func(key string, offset, size int64) string { return "(" + str(key) + num(offset) + num(size) + "t" }
	views := func(offset int64, first, second string) []byte {
		return legacyOf("\x80\x02"+entries(str("x"), tensorOf(old(float4, first), offset, nums(4), nums(1)), str("y"), tensorOf(old(float4, second), offset, nums(4), nums(1)))+".", keys, eight)
	}
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"two pickles by case":     {zipOf(t, one, [2]string{"a/DATA.PKL", one}), `zip members "a/data.pkl" and "a/DATA.PKL", which PyTorch does not distinguish`},
		"two storages by case":    {zipOf(t, one, [2]string{"a/DATA/0", "fedcba9876543210"}), `"a/DATA/0", which PyTorch does not distinguish`},
		"byte order in capitals":  {zipOf(t, one, [2]string{"a/BYTEORDER", "big"}), `zip member "a/BYTEORDER", which PyTorch takes for "a/byteorder"`},
		"byte order elsewhere":    {zipOf(t, one, [2]string{"A/byteorder", "big"}), `zip member "A/byteorder", which PyTorch takes for "a/byteorder"`},
		"script by case":          {zipOf(t, one, [2]string{"a/Constants.pkl", ""}), `which PyTorch takes for "a/constants.pkl"`},
		"storage of another case": {zipOf(t, dictOf(tensorOf(storageOf(float4, "k", 4), 0, nums(4), nums(1))), [2]string{"a/data/K", second[1]}), `zip member "a/data/K", which PyTorch takes for "a/data/k"`},
		"data of a parameter":     {beside(parameter("}" + str("data") + other + "s")), `a parameter with an attribute "data", which changes its elements`},
		"data in a slot":          {beside(parameter("N}" + str("data") + other + "s\x86")), `a parameter with an attribute "data", which changes its elements`},
		"real part":               {beside(parameter("}" + str("real") + other + "s")), `a parameter with an attribute "real"`},
		"state of a tensor":       {zipOf(t, dictOf(oldParameter+"("+storageOf(float4, "1", 4)+num(0)+nums(4)+nums(1)+"tb"), second), "setting attributes of a tensor"},
		"storage in a state":      {zipOf(t, dictOf(oldParameter+"("+storageOf(float4, "1", 4)+num(0)+nums(4)+"tb"), second), "setting attributes of a tensor"},
		"number and bool":         {zipOf(t, "\x80\x02}("+"K\x01"+whole4+"\x88"+other+"u.", second), "duplicate key true, a bool"},
		"number and float":        {zipOf(t, "\x80\x02}("+"G\x3f\xf0\x00\x00\x00\x00\x00\x00"+whole4+"K\x01"+other+"u.", second), "duplicate key 1, an int"},
		"two views, one key":      {views(0, view("v", 0, 4), view("v", 4, 4)), `two views of storages with the key "v"`},
		"two views, sizes":        {views(0, view("v", 0, 4), view("v", 0, 5)), `two views of storages with the key "v"`},
		"view as a storage":       {views(0, view("0", 0, 4), "N"), `two views of storages with the key "0"`},
		"two classes":             {legacyOf("\x80\x02"+entries(str("x"), tensorOf(old(float4, "N"), 0, nums(4), nums(1)), str("y"), tensorOf(old("torch\nIntStorage", "N"), 0, nums(4), nums(1)))+".", keys, eight), `two storages with the key "0"`},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, refusal(test.data), test.want) })
	}
	for name, data := range map[string][]byte{
		"one view twice":       views(0, view("v", 4, 4), view("v", 4, 4)),
		"two views":            views(0, view("v", 0, 4), view("w", 4, 4)),
		"a view and its whole": views(0, view("v", 4, 4), "N"),
		"attributes":           zipOf(t, dictOf(parameter("}"+str("partition_dim")+"K\x01s"))),
		"old state":            zipOf(t, dictOf(oldParameter+"\x88\x89}\x87b")),
		"int keys":             zipOf(t, "\x80\x02}("+"K\x01"+whole4+"K\x02"+whole4+"u."),
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, refusal(data)) })
	}
}
