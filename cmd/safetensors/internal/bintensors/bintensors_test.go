package bintensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pythontest"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// requireFolder compares each file of a folder with the safetensors file next to it. Write
// writes those of version 0.2 again.
func requireFolder(t *testing.T, folder string) {
	names := must(filepath.Glob(filepath.Join(folder, "*.bt")))
	require.Len(t, names, 6)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data := must(os.ReadFile(name))
			require.True(t, Sniff(data))
			tensors, metadata, err := Open(bytes.NewReader(data), int64(len(data)))
			require.NoError(t, err)
			pythontest.RequireSame(t, strings.TrimSuffix(name, ".bt")+".safetensors", tensors, metadata)
			var b bytes.Buffer
			require.NoError(t, Write(&b, tensors, metadata))
			require.True(t, filepath.Base(folder) == "0.0" || bytes.Equal(data, b.Bytes()))
		})
	}
}

// TestGolden reads files that both kinds of versions of bintensors wrote, and writes the same
// bytes.
func TestGolden(t *testing.T) {
	for _, version := range []string{"0.0", "0.2"} {
		t.Run(version, func(t *testing.T) { requireFolder(t, filepath.Join("testdata", version)) })
	}
}

// TestPythonWrites compares files that the installed packages write, of other numbers
// than the golden ones.
func TestPythonWrites(t *testing.T) {
	for version, variable := range map[string]string{"0.0": "SAFETENSORS_BINTENSORS_0_0", "0.2": "SAFETENSORS_BINTENSORS_0_2"} {
		t.Run(version, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), version)
			require.NoError(t, os.Mkdir(folder, 0o777))
			pythontest.Run(t, variable, "bintensors", filepath.Join("testdata", "generate.py"), folder, "1")
			requireFolder(t, folder)
		})
	}
}

// TestRoundTrip reads what Write writes, and has bintensors read it, and write the same.
func TestRoundTrip(t *testing.T) {
	for metadata, want := range map[string]map[string]string{
		"absent": nil,
		"empty":  {},
		"many":   {"b": "1", "a": "größe", "": strings.Repeat("x", 300)},
	} {
		t.Run(metadata, func(t *testing.T) {
			tensors := samples()
			name := filepath.Join(t.TempDir(), "go")
			var b bytes.Buffer
			require.NoError(t, Write(&b, tensors, want))
			require.NoError(t, os.WriteFile(name+".bt", b.Bytes(), 0o666))
			require.NoError(t, safetensors.WriteFile(name+".safetensors", tensors, want))
			read, got, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
			require.NoError(t, err)
			pythontest.RequireSame(t, name+".safetensors", read, got)
			pythontest.Run(t, "SAFETENSORS_BINTENSORS_0_2", "bintensors", filepath.Join("testdata", "generate.py"), "--check", name+".bt", name+".safetensors")
		})
	}
}

// samples returns tensors of all dtypes, and of shapes whose numbers have all sizes.
func samples() map[string]safetensors.Tensor {
	tensors := make(map[string]safetensors.Tensor)
	add := func(name string, d safetensors.DType, shape ...int) {
		n := d.Bits() / 8
		for _, dim := range shape {
			n *= dim
		}
		tensors[name] = must(safetensors.NewTensor(d, shape, bytes.Repeat([]byte{0, 1}, n)[:n]))
	}
	for _, d := range dtypes {
		add(d.String(), d, 3, 5)
	}
	add("scalar", safetensors.F32)
	add("empty", safetensors.F32, math.MaxInt32, 0)
	for _, n := range []int{250, 251, 252, 65535, 65536} {
		add(strings.Repeat("n", n), safetensors.U8, n)
	}
	add("", safetensors.U8, make([]int, maxRank)...)
	return tensors
}

// TestWriteRefuses: what bintensors, or Open, could not read is refused before the first byte is
// written.
func TestWriteRefuses(t *testing.T) {
	one := must(safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1}))
	c64 := must(safetensors.NewTensor(safetensors.C64, []int{1}, make([]byte, 8)))
	ones := slices.Repeat([]int{1}, 65)
	deep := must(safetensors.NewTensor(safetensors.U8, ones, []byte{1}))
	huge := must(safetensors.NewTensorAt(safetensors.U8, []int{1 << 30, 1 << 30}, bytes.NewReader(nil)))
	longKeys := make(map[string]string) // in bincode they take more than in JSON
	for i := range 1519 {
		longKeys[fmt.Sprintf("%065575d", i)] = strings.Repeat("x", 251)
	}
	for name, test := range map[string]struct {
		tensors  map[string]safetensors.Tensor
		metadata map[string]string
		want     string
	}{
		"dtype":          {map[string]safetensors.Tensor{"w": c64}, nil, `tensor "w": bintensors has no dtype for C64`},
		"rank":           {map[string]safetensors.Tensor{"w": deep}, nil, `tensor "w": 65 dimensions, expected at most 64`},
		"zero":           {map[string]safetensors.Tensor{"w": {}}, nil, `tensor "w": bintensors has no dtype for DType(0)`},
		"reserved":       {map[string]safetensors.Tensor{"__metadata__": one}, nil, `tensor "__metadata__": this name is reserved for the metadata`},
		"no UTF-8":       {map[string]safetensors.Tensor{"\xff": one}, nil, `tensor "\xff": the name is not valid UTF-8`},
		"metadata key":   {nil, map[string]string{"\xff": ""}, `metadata key "\xff" or its value is not valid UTF-8`},
		"metadata value": {nil, map[string]string{"a": "\xff"}, `metadata key "a" or its value is not valid UTF-8`},
		"header":         {nil, longKeys, `the header has 100001856 bytes, the limit is 100000000`},
		"size":           {map[string]safetensors.Tensor{"1": huge, "2": huge, "3": huge, "4": huge, "5": huge, "6": huge, "7": huge, "8": huge}, nil, `tensor "8": the data offsets overflow 63 bits`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.EqualError(t, Write(&b, test.tensors, test.metadata), "bintensors file: "+test.want)
			require.Zero(t, b.Len())
		})
	}
}

// failing is a Writer that fails after some bytes.
type failing struct{ left int }

var errFailing = errors.New("failing")

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFailing
	}
	return len(p), nil
}

// A failingOnce fails the first Write only.
type failingOnce struct{ failed bool }

func (f *failingOnce) Write(p []byte) (int, error) {
	if !f.failed {
		f.failed = true
		return 0, errFailing
	}
	return len(p), nil
}

// TestFailingWriter: an error of the writer at any byte comes out of Write.
func TestFailingWriter(t *testing.T) {
	tensors := samples()
	var b bytes.Buffer
	require.NoError(t, Write(&b, tensors, nil))
	for n := 0; n < b.Len(); n += 1 + n/10 {
		require.ErrorIs(t, Write(&failing{n}, tensors, nil), errFailing)
	}
	require.ErrorIs(t, Write(new(failingOnce), tensors, nil), errFailing)
}

// TestSniff has the starts of files of this format, and of formats that look like it.
func TestSniff(t *testing.T) {
	for head, want := range map[string]bool{
		"\x08\x00\x00\x00\x00\x00\x00\x00\x00": true,  // no metadata
		"\x08\x00\x00\x00\x00\x00\x00\x00\x01": true,  // metadata
		"\x08\x00\x00\x00\x00\x00\x00\x00{":    false, // safetensors
		"\x00\x00\x00\x00\x00\x00\x00\x00\x00": false, // no header
		"\x01\xe1\xf5\x05\x00\x00\x00\x00\x00": false, // too long
		"\x08\x00\x00\x00\x00\x00\x00\x00":     false, // short
		"PK\x03\x04\x14\x00\x00\x00\x00":       false, // zip
		"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00": false, // gzip without a name and a time
	} {
		require.Equal(t, want, Sniff([]byte(head)), "%q", head)
	}
}

// file returns a file with this header, padded, whose tensors have data bytes.
func file(header string, data int) []byte {
	for len(header)%8 != 0 {
		header += " "
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

// Tensors U8 [2] at the bytes 0 to 2, and 2 to 4.
const (
	entry = "\x01\x01\x02\x00\x02"
	next  = "\x01\x01\x02\x02\x04"
)

// TestRefused has a file for each check of the header, with the errors that both readings give.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		data         []byte
		newer, older string // "" if it is accepted so
	}{
		"newer":                {file("\x00\x02\x01a"+entry+"\x01b"+next, 4), "", "at byte"},
		"older":                {file("\x00\x02"+entry+next+"\x02\x01a\x00\x01b\x01", 4), "at byte", ""},
		"older, other order":   {file("\x00\x02"+entry+next+"\x02\x01a\x01\x01b\x00", 4), "at byte", ""},
		"empty header":         {file("", 0), "at byte 8: 1 bytes where the header has 0 left: unexpected EOF", "at byte 8"},
		"json":                 {file(`{"a":1}`, 0), "it starts neither with 0 nor with 1", "it starts neither with 0 nor with 1"},
		"metadata truncated":   {file("\x01\x03aaaaaa", 0), "97 bytes where the header has 5 left", "97 bytes"},
		"duplicate key":        {file("\x01\x02\x01a\x01x\x01a\x01y\x00", 0), `duplicate metadata key "a"`, `duplicate metadata key "a"`},
		"metadata no UTF-8":    {file("\x01\x01\x01\xff\x01x\x00", 0), `metadata key "\xff" or its value is not valid UTF-8`, "bytes"},
		"many tensors":         {file("\x00\xfd\x00\x00\x00\x00\x00\x00\x00\x40", 0), "4611686018427387904 entries, safetensors has room for 2097152", "4611686018427387904 entries"},
		"too many tensors":     {file("\x00\xfc\x01\x00\x20\x00"+strings.Repeat("\x00", 2<<20), 0), "2097153 entries, safetensors has room for 2097152", "2097153 entries"},
		"too many keys":        {file("\x01\xfc\x01\x00\x20\x00"+strings.Repeat("\x00", 2<<20), 0), "2097153 entries, safetensors has room for 2097152", "2097153 entries"},
		"long number":          {file("\x00\xfb\x01\x00", 0), "the number 1 is spelled longer than needed", "the number 1 is spelled longer than needed"},
		"u128":                 {file("\x00\xfe", 0), "a number that starts with 254", "a number that starts with 254"},
		"dtype":                {file("\x00\x01\x01a\x0f\x01\x02\x00\x02", 2), "unknown dtype 15", "bytes"},
		"dimension":            {file("\x00\x01\x01a\x01\x01\xfd\x00\x00\x00\x00\x00\x00\x00\x80\x00\x02", 2), "dimension 9223372036854775808 exceeds an int", "bytes"},
		"rank":                 {file("\x00\x01\x01a\x01\x41"+strings.Repeat("\x01", 65)+"\x00\x01", 1), "65 dimensions, expected at most 64", "bytes"},
		"offset":               {file("\x00\x01\x01a\x01\x01\x02\x00\xfd\x00\x00\x00\x00\x00\x00\x00\x80", 2), "data offset 9223372036854775808 overflows 63 bits", "bytes"},
		"overflow":             {file("\x00\x01\x01a\x01\x04"+strings.Repeat("\xfc\xff\xff\xff\x7f", 4)+"\x00\x00", 0), "overflows 64 bits", "bytes"},
		"duplicate":            {file("\x00\x02\x01a"+entry+"\x01a"+next, 4), `tensor "a": duplicate tensor name`, "bytes"},
		"duplicate, older":     {file("\x00\x02"+entry+next+"\x02\x01a\x00\x01a\x01", 4), "bytes", `tensor "a": duplicate tensor name`},
		"one name for two":     {file("\x00\x02"+entry+next+"\x02\x01a\x00\x01b\x00", 4), "bytes", `the name "b" is for tensor 0, which has a name or does not exist`},
		"name for none":        {file("\x00\x02"+entry+next+"\x02\x01a\x00\x01b\x02", 4), "bytes", `the name "b" is for tensor 2, which has a name or does not exist`},
		"few names":            {file("\x00\x02"+entry+next+"\x01\x01a\x00", 4), "bytes", "1 name for 2 tensors"},
		"reserved":             {file("\x00\x01\x0c__metadata__"+entry, 2), `tensor "__metadata__": this name is reserved for the metadata`, "bytes"},
		"name no UTF-8":        {file("\x00\x01\x01\xff"+entry, 2), `tensor "\xff": the name is not valid UTF-8`, "bytes"},
		"hole":                 {file("\x00\x01\x01a"+next, 4), `tensor "a": data offsets [2,4] of U8 [2], expected [0,2]`, "bytes"},
		"overlap":              {file("\x00\x02\x01a"+entry+"\x01b"+entry, 2), `tensor "b": data offsets [0,2] of U8 [2], expected [2,4]`, "bytes"},
		"other order of data":  {file("\x00\x02\x01a"+next+"\x01b"+entry, 4), `tensor "a": data offsets [2,4] of U8 [2], expected [0,2]`, "bytes"},
		"size":                 {file("\x00\x01\x01a\x01\x01\x03\x00\x02", 2), `tensor "a": data offsets [0,2] of U8 [3], expected [0,3]`, "bytes"},
		"end before the start": {file("\x00\x01\x01a\x01\x01\x02\x02\x00", 2), `tensor "a": data offsets [2,0] of U8 [2], expected [0,2]`, "bytes"},
		"truncated data":       {file("\x00\x01\x01a"+entry, 1), "the tensors need 2 bytes, the file has 1: unexpected EOF", "bytes"},
		"no data":              {file("\x00\x01\x01a\x01\x01\x01\x00\x01", 0), "the tensors need 1 byte, the file has 0: unexpected EOF", "bytes"},
		"bytes after":          {file("\x00\x01\x01a"+entry, 3), "the tensors end at 2, but the data after the header has 3 bytes", "bytes"},
		"padding":              {file("\x00\x01\x01a"+entry+" x", 2), "the padding after the table does not consist of spaces", "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, metadata, err := Open(bytes.NewReader(test.data), int64(len(test.data)))
			require.Nil(t, metadata)
			if test.newer == "" || test.older == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			newer, older, _ := strings.Cut(err.Error(), "; as of version 0.0: ")
			require.Contains(t, newer, "bintensors file: as of version 0.1 and later: ")
			if test.newer != "bytes" {
				require.Contains(t, newer, test.newer)
			}
			if test.older != "bytes" { // else some byte shows that it is the other format
				require.Contains(t, older, test.older)
			}
		})
	}
	for name, test := range map[string]struct{ data, want string }{
		"empty":     {"", "0 bytes: shorter than a header: unexpected EOF"},
		"too long":  {"\x01\xe1\xf5\x05\x00\x00\x00\x00\x00", "header length 100000001 exceeds the limit of 100000000"},
		"truncated": {"\x08\x00\x00\x00\x00\x00\x00\x00\x00", "header length 8 exceeds the 1 bytes that follow it: unexpected EOF"},
	} {
		_, _, err := Open(strings.NewReader(test.data), int64(len(test.data)))
		require.EqualError(t, err, "bintensors file: "+test.want, name)
	}
}

// TestTwoWays: a header that is valid in both formats is refused. Its second tensor
// is BF16 [0] in the older one; in the newer one the dtype is the length of a name, and
// the second name of the older one is what follows that.
func TestTwoWays(t *testing.T) {
	data := file("\x00\x02\x00\x02\x01\x01\x00\x01\x08\x01\x00\x01\x01\x02\x00\x00\x04\x00\x01\x00\x01\x01", 1)
	_, _, err := Open(bytes.NewReader(data), int64(len(data)))
	require.EqualError(t, err, "bintensors file: the header can be read in two ways, with 2 tensors and with 2")
}

// TestEverySmallChange: each prefix of a file is refused, and no changed byte makes
// Open or a read panic.
func TestEverySmallChange(t *testing.T) {
	for _, name := range []string{"testdata/0.0/dtypes.bt", "testdata/0.2/dtypes.bt"} {
		data := must(os.ReadFile(name))
		for n := range data {
			_, _, err := Open(bytes.NewReader(data[:n]), int64(n))
			require.Error(t, err)
			for _, value := range []byte{0, 1, 2, ' ', 250, 251, 252, 253, 254, 255, data[n] + 1, data[n] ^ 0x80} {
				changed := bytes.Clone(data)
				changed[n] = value
				readAll(t, changed)
			}
		}
	}
}

// readAll opens a file. If that succeeds, its tensors are those bytes of the file, and
// written again they read the same.
func readAll(t *testing.T, data []byte) {
	tensors, metadata, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return
	}
	total := int64(0)
	for _, tensor := range tensors {
		n := must(tensor.WriteTo(io.Discard))
		require.Equal(t, tensor.Size(), n)
		total += n
	}
	require.EqualValues(t, len(data), 8+int64(binary.LittleEndian.Uint64(data))+total)
	var b bytes.Buffer
	require.NoError(t, Write(&b, tensors, metadata))
	again, metadataAgain, err := Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	require.NoError(t, err)
	require.Equal(t, metadata, metadataAgain)
	require.Len(t, again, len(tensors))
}

// FuzzBintensors reads every tensor of made-up files: no panic, and no memory out of proportion to
// the file.
func FuzzBintensors(f *testing.F) {
	for _, name := range must(filepath.Glob("testdata/*/*.bt")) {
		f.Add(must(os.ReadFile(name)))
	}
	f.Fuzz(readAll)
}

// TestNumbers: each number has one spelling, the shortest one, at all limits between two lengths.
func TestNumbers(t *testing.T) {
	for n, spelled := range map[int64]string{
		0: "\x00", 1: "\x01", mark16 - 1: "\xfa", mark16: "\xfb\xfb\x00", mark16 + 1: "\xfb\xfc\x00",
		1<<16 - 1: "\xfb\xff\xff", 1 << 16: "\xfc\x00\x00\x01\x00", 1 << 31: "\xfc\x00\x00\x00\x80", 1<<32 - 1: "\xfc\xff\xff\xff\xff",
		1 << 32: "\xfd\x00\x00\x00\x00\x01\x00\x00\x00", math.MaxInt64: "\xfd\xff\xff\xff\xff\xff\xff\xff\x7f",
	} {
		require.Equal(t, spelled, string(appendNumber(nil, n)), "%d", n)
		d := &decoder{rest: []byte(spelled + "x")}
		require.EqualValues(t, n, d.number())
		require.Equal(t, "x", string(d.rest))
		require.Panics(t, func() { (&decoder{rest: []byte(spelled[:len(spelled)-1])}).number() }, "%d is cut short", n)
	}
	for _, long := range []string{
		"\xfb\x00\x00", "\xfb\xfa\x00", "\xfc\x00\x00\x00\x00", "\xfc\xff\xff\x00\x00", "\xfd\x00\x00\x00\x00\x00\x00\x00\x00", "\xfd\xff\xff\xff\xff\x00\x00\x00\x00",
		"\xfe\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", "\xff",
	} {
		require.Panics(t, func() { (&decoder{rest: []byte(long)}).number() }, "%q", long)
	}
}
