package npz

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

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

// open opens a file of either kind.
func open(r io.ReaderAt, size int64) (tensors map[string]safetensors.Tensor, refused map[string]error, err error) {
	start := make([]byte, len(magic))
	if r.ReadAt(start, 0); string(start) == magic {
		tensors, err := OpenNPY(r, size)
		return tensors, nil, err
	}
	return Open(r, size)
}

func openBytes(data []byte) (map[string]safetensors.Tensor, map[string]error, error) {
	return open(bytes.NewReader(data), int64(len(data)))
}

// requireFolder compares each file of a folder with the safetensors file next to it.
func requireFolder(t *testing.T, folder string) {
	names := must(filepath.Glob(filepath.Join(folder, "*.np[yz]")))
	require.Len(t, names, 9)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			tensors, refused, err := openBytes(must(os.ReadFile(name)))
			require.NoError(t, err)
			require.Empty(t, refused)
			pythontest.RequireSame(t, strings.TrimSuffix(name, filepath.Ext(name))+".safetensors", tensors, nil)
		})
	}
}

// TestGolden reads files that numpy wrote, and writes the same arrays.
func TestGolden(t *testing.T) { requireFolder(t, "testdata") }

const python, modules = "SAFETENSORS_PYTHON", "numpy,ml_dtypes,safetensors"

// TestPythonWrites compares files that the installed numpy writes, of other numbers
// than the golden ones.
func TestPythonWrites(t *testing.T) {
	for _, seed := range []string{"1", "2"} {
		folder := t.TempDir()
		pythontest.Run(t, python, modules, filepath.Join("testdata", "generate.py"), folder, seed)
		requireFolder(t, folder)
	}
}

// TestRoundTrip: what Write writes, Open reads, and numpy, which writes the same headers. With
// equal input the bytes are equal.
func TestRoundTrip(t *testing.T) {
	tensors := samples(safetensors.BOOL, safetensors.I8, safetensors.U8, safetensors.I16, safetensors.U16, safetensors.F16,
		safetensors.I32, safetensors.U32, safetensors.F32, safetensors.C64, safetensors.F64, safetensors.I64, safetensors.U64)
	name := filepath.Join(t.TempDir(), "go")
	var b, again bytes.Buffer
	require.NoError(t, Write(&b, tensors))
	require.NoError(t, Write(&again, tensors))
	require.True(t, bytes.Equal(b.Bytes(), again.Bytes()))
	require.NoError(t, os.WriteFile(name+".npz", b.Bytes(), 0o666))
	require.NoError(t, safetensors.WriteFile(name+".safetensors", tensors, nil))
	read, refused, err := openBytes(b.Bytes())
	require.NoError(t, err)
	require.Empty(t, refused)
	pythontest.RequireSame(t, name+".safetensors", read, nil)
	pythontest.Run(t, python, modules, filepath.Join("testdata", "generate.py"), "--check", name+".npz", name+".safetensors")
}

// samples returns tensors of these dtypes, and of many shapes.
func samples(dtypes ...safetensors.DType) map[string]safetensors.Tensor {
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
	add("vector", safetensors.F32, 7)
	add("empty", safetensors.F32, 0)
	add("größe/…", safetensors.U8, 12345, 1)
	add("", safetensors.U8, 1, 1, 1)
	add("rank 64", safetensors.U8, slices.Repeat([]int{1}, 64)...)
	return tensors
}

// TestWriteRefuses: tensors and names that NumPy could not read are refused before the first byte
// is written.
func TestWriteRefuses(t *testing.T) {
	one := must(safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1}))
	typed := func(d safetensors.DType) safetensors.Tensor {
		t, _ := safetensors.NewTensor(d, []int{4}, make([]byte, d.Bits()/2))
		return t
	}
	deep := must(one.Reshape(slices.Repeat([]int{1}, 65)...))
	for name, test := range map[string]struct {
		tensors map[string]safetensors.Tensor
		want    string
	}{
		"bf16":      {map[string]safetensors.Tensor{"a": one, "w": typed(safetensors.BF16)}, `npz file: tensor "w": NumPy has no type for BF16`},
		"f8":        {map[string]safetensors.Tensor{"w": typed(safetensors.F8_E4M3)}, `npz file: tensor "w": NumPy has no type for F8_E4M3`},
		"f4":        {map[string]safetensors.Tensor{"w": typed(safetensors.F4)}, `npz file: tensor "w": NumPy has no type for F4`},
		"zero":      {map[string]safetensors.Tensor{"w": {}}, `npz file: tensor "w": NumPy has no type for DType(0)`},
		"rank":      {map[string]safetensors.Tensor{"w": deep}, `npz file: tensor "w": it has 65 dimensions, NumPy allows 64`},
		"two names": {map[string]safetensors.Tensor{"w": one, "w.npy": one}, `npz file: tensor "w": NumPy does not distinguish it from "w.npy"`},
		"zero byte": {map[string]safetensors.Tensor{"w\x00": one}, `npz file: tensor "w\x00": its name has a zero byte or is not valid UTF-8, which the zip format does not allow`},
		"no UTF-8":  {map[string]safetensors.Tensor{"w\xff": one}, `npz file: tensor "w\xff": its name has a zero byte or is not valid UTF-8, which the zip format does not allow`},
		"longest":   {map[string]safetensors.Tensor{strings.Repeat("w", math.MaxUint16-4): one}, ""},
		"too long":  {map[string]safetensors.Tensor{strings.Repeat("w", math.MaxUint16-3): one}, `npz file: tensor "` + strings.Repeat("w", 200) + `": its name has 65532 bytes, too many for the zip format`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			err := Write(&b, test.tensors)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
			require.Zero(t, b.Len())
		})
	}
}

// zipped returns an archive of files.
func zipped(t *testing.T, files map[string][]byte) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		must(must(w.Create(name)).Write(content))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
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

// TestFailingWriter: an error of the writer at any byte, and one of a computed tensor, comes out of
// Write.
func TestFailingWriter(t *testing.T) {
	tensors := samples(safetensors.F64)
	var b bytes.Buffer
	require.NoError(t, Write(&b, tensors))
	for n := 0; n < b.Len(); n += 1 + n/50 {
		require.ErrorIs(t, Write(&failing{n}, tensors), errFailing)
	}
	bad := must(safetensors.NewTensorFunc(safetensors.U8, []int{1}, func([]byte) error { return errFailing }))
	err := Write(io.Discard, map[string]safetensors.Tensor{"w": bad})
	require.ErrorIs(t, err, errFailing)
	require.ErrorContains(t, err, `npz file: tensor "w": `)
}

// TestRefused has a file of numpy for each type that safetensors lacks, with the reason.
func TestRefused(t *testing.T) {
	for name, want := range map[string]string{
		"object.npy":     `type "|O": arrays of Python objects are pickles, which are not read`,
		"strings.npy":    `type "<U2": arrays of strings are not supported`,
		"bytes.npy":      `type "|S2": arrays of strings are not supported`,
		"dates.npy":      `type "<M8[D]": dates and times are not supported; convert them to int64`,
		"record.npy":     `structured arrays are not supported; save each field as an array`,
		"bfloat16.npy":   `type "<V2": raw bytes of unknown meaning. numpy forgets the type of bfloat16 and float8 arrays of ml_dtypes; convert them to float32 before saving`,
		"float8.npy":     `type "<V1": raw bytes of unknown meaning`,
		"complex128.npy": `type "<c16": safetensors has no such dtype`,
		"longdouble.npy": `type "<f16": safetensors has no such dtype`,
	} {
		t.Run(name, func(t *testing.T) {
			tensors, _, err := openBytes(must(os.ReadFile(filepath.Join("testdata", "refused", name))))
			require.ErrorContains(t, err, want)
			require.Nil(t, tensors)
		})
	}
}

// TestAmong: arrays that cannot be read, and files that are none, are refused by name,
// whatever is next to them is read.
func TestAmong(t *testing.T) {
	data := zipped(t, map[string][]byte{
		"w.npy":      npy(usual, "abcd"),
		"s.npy":      npy(strings.Replace(usual, "<f4", "<U1", 1), "abcd"),
		"o.npy":      npy(strings.Replace(usual, "<f4", "|O", 1), "cos\nsystem\n(X\x0e\x00\x00\x00touch executedtR."),
		"c.npy":      npy(strings.Replace(usual, "<f4", "<c16", 1), "abcdabcdabcdabcd"),
		"r.npy":      npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd"),
		"readme.txt": []byte("text"),
	})
	tensors, refused, err := openBytes(data)
	require.NoError(t, err)
	require.Equal(t, []string{"w"}, slices.Collect(maps.Keys(tensors)))
	require.Equal(t, []string{"c", "o", "r", "readme.txt", "s"}, slices.Sorted(maps.Keys(refused)))
	require.ErrorContains(t, refused["o"], `type "|O": arrays of Python objects are pickles, which are not read`)
	require.ErrorContains(t, refused["readme.txt"], "it is not a .npy file")
	require.NoFileExists(t, "executed")
}

// TestPacked: a compressed array that is read takes its size in memory, so one that packs
// better than weights can is refused above 256 MiB.
func TestPacked(t *testing.T) {
	archive := func(size int) []byte {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
		f := must(w.Create("w.npy"))
		must(f.Write(npy(fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }", size), "")))
		for range size >> 20 {
			must(f.Write(make([]byte, 1<<20)))
		}
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	data := archive(20 << 20)
	tensors, _, err := openBytes(data)
	require.NoError(t, err)
	require.EqualValues(t, 20<<20, must(tensors["w"].WriteTo(io.Discard)))

	data = archive(257 << 20)
	tensors, refused, err := openBytes(data)
	require.NoError(t, err)
	require.Empty(t, tensors)
	require.ErrorContains(t, refused["w"], "would have to be unpacked into memory; store the archive without compression")
}

// counting counts the bytes that are read.
type counting struct {
	r io.ReaderAt
	n int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.n += n
	return n, err
}

// TestWindows: an array that is read window by window is read, and unpacked, once.
func TestWindows(t *testing.T) {
	numbers := make([]float32, 300_000)
	for i := range numbers {
		numbers[i] = float32(i)
	}
	var content, want bytes.Buffer
	content.Write(npy("{'descr': '>f4', 'fortran_order': False, 'shape': (300000,), }", ""))
	require.NoError(t, binary.Write(&content, binary.BigEndian, numbers))
	require.NoError(t, binary.Write(&want, binary.LittleEndian, numbers))
	for _, data := range [][]byte{zipped(t, map[string][]byte{"w.npy": content.Bytes()}), content.Bytes()} {
		r := &counting{r: bytes.NewReader(data)}
		tensors, _, err := open(r, int64(len(data)))
		require.NoError(t, err)
		for _, x := range tensors {
			var got bytes.Buffer
			section := struct{ io.Reader }{io.NewSectionReader(x, 0, x.Size())}
			must(io.CopyBuffer(struct{ io.Writer }{&got}, section, make([]byte, 1001)))
			require.True(t, bytes.Equal(want.Bytes(), got.Bytes()))
		}
		require.Less(t, r.n, 3*len(data))
	}
}

// npy returns a file with this header text and data.
func npy(text, data string) []byte {
	return []byte(magic + "\x01\x00" + string([]byte{byte(len(text)), byte(len(text) >> 8)}) + text + data)
}

const usual = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"

// TestTypes has the name of each dtype in NumPy, with its byte order, which elements of one byte do not have.
func TestTypes(t *testing.T) {
	got := make(map[string]string)
	for d := range safetensors.DTypes() {
		if name := typeOf(d); name != "" {
			got[d.String()] = name
		}
	}
	require.Equal(t, map[string]string{
		"BOOL": "|b1", "U8": "|u1", "I8": "|i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
		"F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
	}, got)
}

// TestReadFails: an error of reading the header of an array is not that of a short file.
func TestReadFails(t *testing.T) {
	broken := errors.New("broken")
	text := npy(usual, "")
	for n := range 20 {
		_, err := readHeader(io.MultiReader(bytes.NewReader(text[:n]), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, "%d", n)
		_, err = readHeader(bytes.NewReader(text[:n]))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d", n)
	}
}

// TestHeaders has the spellings of a header that numpy reads, and those that it refuses.
func TestHeaders(t *testing.T) {
	for text, want := range map[string]string{
		usual: "F32 [1]",
		`{"shape":(1,1),"fortran_order":True,"descr":">f4"}`:            "F32 [1,1]",
		"{'descr': '<f4', 'fortran_order': False, 'shape': ()}":         "F32 []",
		"{'descr': '<f4', 'fortran_order': False, 'shape': ( )}  \n":    "F32 []",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 1L)}\n": "F32 [1,1]",
		" { 'descr' : '<i4' ,'fortran_order':False,\n'shape':(1, 1, )}": "I32 [1,1]",
	} {
		tensors, _, err := openBytes(npy(text, "abcd"))
		require.NoError(t, err)
		require.Equal(t, want, tensors[ArrayName].String())
	}
	for text, want := range map[string]string{
		"":               "expected a dict of Python, found ",
		"[]":             "expected a dict of Python, found ",
		"{":              "expected a dict of Python, found ",
		"{}":             `the key "descr" is missing`,
		"{1}":            `the header: expected 'KEY': VALUE, found "1"`,
		"{'descr:}":      "expected 'KEY': VALUE, found ",
		`{'des\'cr': 1}`: "expected 'KEY': VALUE, found ",
		"{'descr':}":     "expected 'KEY': VALUE, found ",
		"{,}":            "expected 'KEY': VALUE, found ",
		"{'descr': '<f4', 'fortran_order': False}": `the key "shape" is missing`,
		"{'shape': (), 'fortran_order': False, }":  `the key "descr" is missing`,
		"{'descr': '<f4', 'descr': '<f4'}":         `the key "descr" is unknown or a duplicate`,
		"{'descr' '<f4'}":                          "expected 'KEY': VALUE, found ",
		"{'more': 1}":                              `the key "more" is unknown or a duplicate`,
		"{'descr': '<f4' 'fortran_order': False}":  "expected 'KEY': VALUE, found ",
		"{'descr': '<f4',, 'shape': ()}":           `expected 'KEY': VALUE, found ", 'shape': ()"`,
		"{'descr': '<f4', 'fortran_order': 1}":     `fortran_order is "1", not True or False`,
		"{'descr': '<f4', 'fortran_order': true}":  `fortran_order is "true", not True or False`,
		"{'descr': None}":                          `descr is "None", not a string`,
		"{'descr': '<f'}":                          `type "<f": safetensors has no such dtype`,
		"{'descr': ''}":                            `type "": safetensors has no such dtype`,
		"{'descr': 'f4'}":                          `type "f4": safetensors has no such dtype`,
		"{'descr': '=f4'}":                         `"=f4" has no byte order`,
		"{'descr': '|f4'}":                         `"|f4" has no byte order`,
		"{'descr': '<f4x'}":                        `type "<f4x": safetensors has no such dtype`,
		"{'descr': '<f\\x34'}":                     "expected 'KEY': VALUE, found ",
		"{'shape': 1}":                             `the shape is "1", not a tuple of integers`,
		"{'shape': (1)}":                           `the shape is "(1)", not a tuple of integers`,
		"{'shape': (,)}":                           `the shape is "(,)", not a tuple of integers`,
		"{'shape': (1,,1)}":                        `the shape is "(1,,1)", not a tuple of integers`,
		"{'shape': (1 1,)}":                        `the shape is "(1 1,)", not a tuple of integers`,
		"{'shape': (-1,)}":                         `the shape is "(-1,)", not a tuple of integers`,
		"{'shape': (+1,)}":                         `the shape is "(+1,)", not a tuple of integers`,
		"{'shape': (1.0,)}":                        `the shape is "(1.0,)", not a tuple of integers`,
		"{'shape': (01,)}":                         `the shape is "(01,)", not a tuple of integers`,
		"{'shape': '(1,)'}":                        `the shape is "'(1,)'", not a tuple of integers`,
		"{'shape': (1}":                            "expected 'KEY': VALUE, found ",
		"{'shape': ((1,),)}":                       "expected 'KEY': VALUE, found ",
		"{'shape': (9223372036854775808,)}":        `not a tuple of integers`,
		usual + " {}":                              "expected 'KEY': VALUE, found ",
		usual + " x":                               "expected a dict of Python, found ",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}":                                "F32 [2] needs 8 bytes, the file has 4: unexpected EOF",
		"{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}":                                "F32 [0] needs 0 bytes, the file has 4",
		"{'descr': '<f4', 'fortran_order': True, 'shape': (1<<40,)}":                             "not a tuple of integers",
		"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2147483647)}":                      "needs 8589934588 bytes, the file has 4",
		"{'descr': '<f4', 'fortran_order': True, 'shape': (2147483647, 2147483647, 2147483647)}": "overflows 64 bits",
	} {
		_, _, err := openBytes(npy(text, "abcd"))
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, "npy file: ")
	}
}

// TestBadStart has files that are cut or wrong before the dict of their header.
func TestBadStart(t *testing.T) {
	good := npy(usual, "abcd")
	for data, want := range map[string]string{
		"":                                 "shorter than a header: unexpected EOF",
		strings.Repeat("x", 100):           `it starts with "xxxxxx"`,
		magic + "\x00\x00\x10\x00":         "version 0.0 of the .npy format",
		magic + "\x04\x00\x10\x00":         "version 4.0 of the .npy format",
		magic + "\x01\x01\x10\x00":         "version 1.1 of the .npy format",
		magic + "\x01\x00\xff\xff":         "a header of 65535 bytes, numpy's limit is 10000",
		magic + "\x02\x00\xff\xff\xff\xff": "a header of 4294967295 bytes, numpy's limit is 10000",
		magic + "\x02\x00\xff\xff":         "reading the header: EOF",
		magic + "\x01\x00\x10\x00":         "reading the header: unexpected EOF",
		string(good[:20]):                  "reading the header: unexpected EOF",
		string(good[:len(good)-1]):         "needs 4 bytes, the file has 3: unexpected EOF",
		string(good) + "e":                 "needs 4 bytes, the file has 5",
	} {
		_, err := OpenNPY(strings.NewReader(data), int64(len(data)))
		require.ErrorContains(t, err, want, "%q", data)
	}
	data := zipped(t, map[string][]byte{"w.npy": npy(usual, "abc")})
	_, _, err := Open(bytes.NewReader(data), int64(len(data)))
	require.EqualError(t, err, `npz file: array "w": F32 [1] needs 4 bytes, the file has 3: unexpected EOF`)
}

// readSome opens data and reads the ends of the tensors.
func readSome(data []byte) {
	b := make([]byte, 1000)
	tensors, _, _ := openBytes(data)
	for _, t := range tensors {
		t.ReadAt(b, 0)
		t.ReadAt(b, max(0, t.Size()-500))
	}
}

// TestEverySmallChange: each prefix of a file is refused, and no changed byte makes
// Open or a read panic.
func TestEverySmallChange(t *testing.T) {
	for _, name := range []string{"fortran_compressed.npz", "version2.npy"} {
		data := must(os.ReadFile(filepath.Join("testdata", name)))
		for n := range data {
			_, _, err := openBytes(data[:n])
			require.Error(t, err, "%s, %d bytes", name, n)
			changed := bytes.Clone(data)
			changed[n] ^= 0x81
			readSome(changed)
		}
	}
}

// FuzzNPZ reads made-up files: no panic, and no memory out of proportion to the file.
func FuzzNPZ(f *testing.F) {
	for _, name := range append(must(filepath.Glob("testdata/*.np[yz]")), must(filepath.Glob("testdata/refused/*"))...) {
		f.Add(must(os.ReadFile(name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) { readSome(data) })
}
