package apitest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestReadHeader checks that ReadHeader consumes the header and nothing else, and
// how it fails if the reader ends at each byte.
func TestReadHeader(t *testing.T) {
	file := fileOf(`{"__metadata__":{"k":"v"},"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}`, 4)
	want := &Header{
		Metadata:  map[string]string{"k": "v"},
		Tensors:   []TensorInfo{{Name: "a", DType: F16, Shape: []int{2}, DataOffsets: [2]int64{0, 4}}},
		DataStart: int64(len(file) - 4),
	}
	for _, r := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file)), iotest.DataErrReader(bytes.NewReader(file))} {
		require.Equal(t, want, must(ReadHeader(r)))
		require.Len(t, must(io.ReadAll(r)), 4)
	}
	for n := range want.DataStart {
		_, err := ReadHeader(bytes.NewReader(file[:n]))
		if n < 8 {
			require.ErrorContains(t, err, fmt.Sprintf("file of %d byte", n))
		} else {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
	}
}

// TestHeaderErrors checks for each rule of the format the error of a header that
// breaks it.
func TestHeaderErrors(t *testing.T) {
	entry := func(fields string) string { return `{"a":{` + fields + `}}` }
	for _, c := range []struct{ rule, header, want string }{
		{"a header is not empty", ``, `safetensors: expected an object, the header, found the end of the text (at byte 8)`},
		{"a header is more than white space", " \t\r\n", `safetensors: expected an object, the header, found the end of the text (at byte 12)`},
		{"a header is an object", ` []`, `safetensors: expected an object, the header, found '[' (at byte 9)`},
		{"a header has no byte order mark", "\ufeff{}", `safetensors: expected an object, the header, found '\ufeff' (at byte 8)`},
		{"only JSON's white space precedes the object", "\f{}", `safetensors: expected an object, the header, found '\f' (at byte 8)`},
		{"a header is valid UTF-8", "{\"\xff\"}", `safetensors: the header is not valid UTF-8 (at byte 10)`},
		{"only white space follows the object", `{}x`, `safetensors: expected the end of the header, found 'x' (at byte 10)`},
		{"a colon follows a name", `{"a"}`, `safetensors: expected ':', found '}' (at byte 12)`},
		{"an entry is an object", `{"a":1}`, `safetensors: tensor "a": expected an object, the entry of a tensor, found '1' (at byte 13)`},
		{"metadata values are strings", `{"__metadata__":{"k":1}}`, `safetensors: metadata key "k": found '1', but values are strings: write JSON as a string (at byte 29)`},
		{"JSON among the metadata is text", `{"__metadata__":{"format":"pt","config":{"a":1}}}`, `safetensors: metadata key "config": found '{', but values are strings: write JSON as a string (at byte 48)`},
		{"a metadata key may be called shape", `{"__metadata__":{"shape":{}}}`, `safetensors: metadata key "shape": found '{', but values are strings: write JSON as a string (at byte 33)`},
		{"metadata values are complete", `{"__metadata__":{"k":`, `safetensors: expected a string, the value of a metadata key, found the end of the text (at byte 29)`},
		{"__metadata__ is not a tensor", `{"__metadata__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, `safetensors: tensor "__metadata__": this name is reserved for the metadata (at byte 10)`},
		{"__metadata__ is not a tensor, in any order", `{"__metadata__":{"data_offsets":[0,1],"dtype":"U8","shape":[1]}}`, `safetensors: tensor "__metadata__": this name is reserved for the metadata (at byte 10)`},
		{"__metadata__ is unique", `{"__metadata__":{},"__metadata__":{}}`, `safetensors: duplicate __metadata__ (at byte 42)`},
		{"metadata keys are unique", `{"__metadata__":{"k":"v","\u006b":"w"}}`, `safetensors: duplicate metadata key "k" (at byte 34)`},
		{"tensor names are unique", `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`,
			`safetensors: tensor "a": duplicate tensor name (at byte 62)`},
		{"an entry has a dtype", entry(`"shape":[0],"data_offsets":[0,0]`), `safetensors: tensor "a": the entry has no dtype (at byte 46)`},
		{"fields of an entry are unique", entry(`"shape":[0],"shape":[0]`), `safetensors: tensor "a": duplicate field "shape" (at byte 26)`},
		{"the dtype is known", entry(`"dtype":"F31","shape":[0],"data_offsets":[0,0]`), `safetensors: tensor "a": unknown dtype "F31" (at byte 23)`},
		{"data offsets hold exactly the elements", entry(`"dtype":"F32","shape":[2,2],"data_offsets":[0,12]`), `safetensors: tensor "a": data offsets [0,12] hold 12 bytes, F32 [2,2] needs 16 (at byte 13)`},
		{"data offsets rise", entry(`"dtype":"F32","shape":[0],"data_offsets":[4,0]`), `safetensors: tensor "a": data offsets [4,0] end before they start (at byte 13)`},
		{"elements fill whole bytes", entry(`"dtype":"F4","shape":[3],"data_offsets":[0,2]`), `safetensors: tensor "a": F4 [3] has 12 bits, which do not fill whole bytes (at byte 13)`},
		{"the number of elements fits 64 bits", entry(`"dtype":"U8","shape":[1073741824,1073741824,1073741824],"data_offsets":[0,0]`), `safetensors: tensor "a": the number of elements of shape [1073741824,1073741824,1073741824] overflows 64 bits (at byte 13)`},
		{"the number of bits fits 64 bits", entry(`"dtype":"U64","shape":[1073741824,1073741824],"data_offsets":[0,0]`), `safetensors: tensor "a": the number of bits of U64 [1073741824,1073741824] overflows 64 bits (at byte 13)`},
		{"integers have no leading zero", entry(`"dtype":"U8","shape":[01],"data_offsets":[0,1]`), `safetensors: tensor "a": a dimension has a leading zero (at byte 36)`},
		{"dimensions are integers", entry(`"dtype":"U8","shape":[1.0],"data_offsets":[0,1]`), `safetensors: tensor "a": a dimension is not written as an integer (at byte 36)`},
		{"data offsets fit int64", entry(`"dtype":"U8","shape":[1],"data_offsets":[0,9223372036854775808]`), `safetensors: tensor "a": a data offset is above 9223372036854775807 (at byte 57)`},
		{"a data offset is a number", entry(`"dtype":"U8","shape":[1],"data_offsets":[,"x":0`), `safetensors: tensor "a": expected a data offset, an integer of 0 or more, found ',' (at byte 55)`},
		{"there are two data offsets", entry(`"dtype":"U8","shape":[1],"data_offsets":[0]`), `safetensors: tensor "a": expected ',', found ']' (at byte 56)`},
		{"a comma separates data offsets", entry(`"dtype":"U8","shape":[1],"data_offsets":[0 1]`), `safetensors: tensor "a": expected ',', found '1' (at byte 57)`},
		{"the second data offset is a number", entry(`"dtype":"U8","shape":[1],"data_offsets":[0,]`), `safetensors: tensor "a": expected a data offset, an integer of 0 or more, found ']' (at byte 57)`},
		{"there are no three data offsets", entry(`"dtype":"U8","shape":[1],"data_offsets":[0,1,1]`), `safetensors: tensor "a": expected ']', found ',' (at byte 58)`},
		{"data offsets are an array", entry(`"dtype":"U8","shape":[1],"data_offsets":0`), `safetensors: tensor "a": expected an array, the data offsets, found '0' (at byte 54)`},
		{"dimensions are numbers", entry(`"dtype":"U8","data_offsets":[0,1],"shape":[,"x":0`), `safetensors: tensor "a": expected a dimension, an integer of 0 or more, found ',' (at byte 57)`},
		{"a shape is an array", entry(`"dtype":"U8","data_offsets":[0,1],"shape":1`), `safetensors: tensor "a": expected an array, the shape, found '1' (at byte 56)`},
		{"a dtype is a string", entry(`"shape":[1],"data_offsets":[0,1],"dtype":[`), `safetensors: tensor "a": expected a string, the dtype, found '[' (at byte 55)`},
		{"data has no holes", entry(`"dtype":"U8","shape":[1],"data_offsets":[3,4]`), `safetensors: tensor "a": data offsets start at 3, but the tensors before it end at 0: a hole of 3 bytes (at byte 10)`},
		{"a hole of one byte", entry(`"dtype":"U8","shape":[1],"data_offsets":[1,2]`), `safetensors: tensor "a": data offsets start at 1, but the tensors before it end at 0: a hole of 1 byte (at byte 10)`},
		{"offsets do not count from the start of the file", entry(`"dtype":"U8","shape":[1],"data_offsets":[63,64]`), `safetensors: tensor "a": data offsets start at 63, but the tensors before it end at 0: a hole of 63 bytes; offsets count from the end of the header (at byte 10)`},
		{"offsets do not count from the header length", entry(`"dtype":"U8","shape":[1],"data_offsets":[55,56]`) + "  ", `safetensors: tensor "a": data offsets start at 55, but the tensors before it end at 0: a hole of 55 bytes; offsets count from the end of the header (at byte 10)`},
		{"a hole is before the end of the header", entry(`"dtype":"U8","shape":[1],"data_offsets":[54,55]`) + "  ", `safetensors: tensor "a": data offsets start at 54, but the tensors before it end at 0: a hole of 54 bytes (at byte 10)`},
		{"a hole is behind the end of the header", entry(`"dtype":"U8","shape":[1],"data_offsets":[66,67]`) + "  ", `safetensors: tensor "a": data offsets start at 66, but the tensors before it end at 0: a hole of 66 bytes (at byte 10)`},
		{"the data buffer holds all tensors", entry(`"dtype":"U8","shape":[9],"data_offsets":[0,9]`), `safetensors: the data buffer is truncated: the tensors need 9 bytes, the file has 4 (at byte 65)`},
		{"every byte of data belongs to a tensor", `{}`, `safetensors: the tensors end at 0, but the data buffer has 4 bytes: 4 belong to no tensor (at byte 10)`},
		{"strings have no control characters", "{\"a\n\"}", `safetensors: control character '\n' in a string (at byte 11)`},
		{"surrogates come in pairs", `{"\udc00"}`, `safetensors: lone surrogate \udc00 in a string (at byte 10)`},
		{"strings end", `{"a`, `safetensors: the string that starts here does not end (at byte 9)`},
		{"nesting has at most 127 levels", entry(`"x":` + strings.Repeat("[", 126)), `safetensors: tensor "a": objects and arrays are nested deeper than 127 levels (at byte 143)`},
		{"ignored numbers fit float64", entry(`"x":1e309`), `safetensors: tensor "a": number exceeds the range of a 64-bit float (at byte 18)`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			require.EqualError(t, errorOf(Parse(fileOf(c.header, 4))), c.want)
		})
	}
}

// TestFormatErrorCutsNames checks that a name as long as a header does not make
// an error as long.
func TestFormatErrorCutsNames(t *testing.T) {
	err := &FormatError{Offset: -1, Tensor: strings.Repeat("x", 1000), Reason: "r"}
	require.Less(t, len(err.Error()), 300)
}

// TestTar: a tar archive begins with the name of a file, as text. Its magic number is beyond the first
// bytes, so that only a stream is refused without it.
func TestTar(t *testing.T) {
	archive := make([]byte, 1024)
	copy(archive, "weights.bin")
	copy(archive[257:], "ustar\x0000")
	for way, err := range openingErrors(t, archive) {
		want := "this is a tar archive, not a safetensors file"
		if way == "Read" {
			want = "this is text, not a safetensors file"
		}
		require.ErrorContains(t, err, want, way)
	}
	for _, cut := range []int{257, 258, 261} {
		require.ErrorContains(t, errorOf(Parse(archive[:cut])), "this is text, not a safetensors file")
	}
	require.ErrorContains(t, errorOf(Parse(archive[:262])), "this is a tar archive")
}

// TestGzip: gzip data without a name and a time begins with eight bytes that can be a header length. The
// byte after them is not read from a stream, which is refused for its header.
func TestGzip(t *testing.T) {
	const start = "\x1f\x8b\x08\x00\x00\x00\x00\x00"
	for _, size := range []int{100, 600_000} { // the second file has as many bytes as the header length demands
		archive := make([]byte, size)
		copy(archive, start+"\x02\x03")
		for way, err := range openingErrors(t, archive) {
			if way != "Read" {
				require.ErrorContains(t, err, "this is gzip data, not a safetensors file", way)
			}
		}
	}
	const cut = "header length 559903 exceeds the"
	for _, rest := range []string{"", "{}", " {}", "\t{}"} {
		require.ErrorContains(t, errorOf(Parse([]byte(start+rest))), cut, "%q", rest)
	}
}

// TestNotSafetensors: every way to read refuses other files, and broken ones, with a
// FormatError that names what they are.
func TestNotSafetensors(t *testing.T) {
	for _, c := range []struct{ content, want string }{
		{"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n", "Git LFS pointer"},
		{"<!DOCTYPE html><html></html>", "HTML page"},
		{"\n\n<html>\n", "HTML page"},
		{"PK\x03\x04\x00\x00\x08\x08\x00\x00", "this is a zip archive, not a safetensors file; package torch reads files of torch.save (.bin, .pt), package dcp folders of .distcp files"},
		{"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j", "this is a Python pickle, not a safetensors file; package torch reads"},
		{"GGUF\x03\x00\x00\x00\x01\x00", "GGUF"},
		{"\x89HDF\r\n\x1a\n\x00", "HDF5"},
		{"\x1f\x8b\x08\x00\x3b\x4a\x69\x6a\x00\x03", "this is gzip data"},
		{"\xfd7zXZ\x00\x00\x04\xe6\xd6", "this is xz data"},
		{"BZh91AY&SY", "this is bzip2 data"},
		{"\x08\x08\x12\x07pytorch\x1a\x05", "ONNX"},
		{`{"weight_map":{}}`, "JSON text"},
		{"anything else", "this is text, not a safetensors file"},
		{"any\x00thing else", "header length"},
		{string(fileOf(`{"x":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}`, 1)), "data offsets [0,1] hold 1 byte, U8 [2] needs 2"},
	} {
		errs := openingErrors(t, []byte(c.content))
		errs["ReadHeader"] = errorOf(ReadHeader(strings.NewReader(c.content)))
		for way, err := range errs {
			var broken *FormatError
			require.ErrorAs(t, err, &broken, way)
			require.Contains(t, broken.Reason, c.want, way)
		}
	}
}

// TestIgnoredNumbers checks the values of unknown fields: the grammar of JSON
// numbers, and the limit as the reference has it, which multiplies the digits that
// fit 64 bits by a power of ten.
func TestIgnoredNumbers(t *testing.T) {
	for number, ok := range map[string]bool{
		"0": true, "-0": true, "-0.0e-0": true, "1E+2": true, "18446744073709551616": true,
		"1.7976931348623157e308": true, "1.7976931348623158e308": false,
		"-1e309": false, "0e99999999999": true, "1e-99999999999": true, "1e99999999999": false, "0.00001e314": false,
		"0.00001e313": true, strings.Repeat("9", 308): true, strings.Repeat("9", 310): false, strings.Repeat("9", 310) + "e-5": true,
		"1.": false, ".5": false, "1e": false, "1e+": false, "-": false, "01": false, "-01": false, "0x1": false, "+1": false,
	} {
		_, err := Parse(fileOf(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":`+number+`}}`, 1))
		require.Equal(t, ok, err == nil, "%s: %v", number, err)
	}
}

// TestClaims checks that a small file that claims to be large makes nothing large
// be allocated.
func TestClaims(t *testing.T) {
	const limit, maxHeaderLength = 1 << 20, 100_000_000
	for _, length := range []uint64{maxHeaderLength, maxHeaderLength + 1, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		file := append(binary.LittleEndian.AppendUint64(nil, length), `{"a":{"dtype":"U8"`...)
		require.Less(t, testplatform.Allocated(func() {
			require.Error(t, errorOf(Parse(file)))
			require.Error(t, errorOf(ReadHeader(bytes.NewReader(file))))
			require.Error(t, errorOf(NewFile(bytes.NewReader(file), int64(len(file)))))
		}), uint64(limit), length)
	}
	// The memory for a header grows with what arrives of it.
	part := append(binary.LittleEndian.AppendUint64(nil, maxHeaderLength), make([]byte, 1<<20)...)
	require.Less(t, testplatform.Allocated(func() {
		_, err := ReadHeader(bytes.NewReader(part))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorContains(t, err, "header length 100000000 exceeds the 1048576 bytes that follow it")
	}), uint64(8*limit))
	large := fileOf(`{"a":{"dtype":"U8","shape":[1000000000000],"data_offsets":[0,1000000000000]}}`, 10)
	require.Less(t, testplatform.Allocated(func() {
		require.Error(t, errorOf(Parse(large)))
		require.Error(t, errorOf(Read(bytes.NewReader(large))))
	}), uint64(limit))
}

// TestFileHeader: a File of one file has the header that ReadHeader reads, whichever
// way it was opened. What it hands out can be changed, and the File stays as it is.
func TestFileHeader(t *testing.T) {
	name, metadata := filepath.Join(t.TempDir(), "model.safetensors"), map[string]string{"k": "v"}
	require.NoError(t, WriteFile(name, checkpointOf(5), metadata))
	file := must(os.Open(name))
	defer file.Close()
	want := must(ReadHeader(file))
	for way, open := range openedBy {
		f := must(open(name))
		require.Equal(t, want, f.Header(), way)
		require.Equal(t, len(want.Tensors), f.Len(), way)
		h := f.Header()
		info, ok := h.Tensor("t03")
		require.True(t, ok)
		require.Equal(t, h.Tensors[3], info)
		info, ok = h.Tensor("absent")
		require.False(t, ok)
		require.Zero(t, info)
		h.Tensors[0].Shape[0] = 99
		h.Tensors[1].Name = "other"
		clear(h.Metadata)
		_ = append(must(f.Tensor("t00")).Shape()[:0], 100, 100) // as a loop that builds shapes does
		clear(f.Metadata())
		clear(must(Join(f)).Metadata())
		require.Equal(t, want, f.Header(), way)
		require.Equal(t, []int{4, 4}, must(f.Tensor("t00")).Shape(), way)
		require.Equal(t, metadata, f.Metadata(), way)
		require.Equal(t, metadata, must(Join(f)).Metadata(), way)
		for file, h := range f.Headers() {
			if way == "Open" || way == "Load" {
				require.Equal(t, filepath.Base(name), file)
			}
			require.Equal(t, want, h, way)
		}
		require.NoError(t, f.Close())
		require.Equal(t, want, f.Header(), "also after Close")
	}
}

// TestHeadersOfShards finds the bytes of each tensor in its own file, and copies all
// shards into one file by the header of the whole.
func TestHeadersOfShards(t *testing.T) {
	dir := t.TempDir()
	tensors := checkpointOf(9)
	tensors["empty"] = counting(U32, 0, 3)
	require.NoError(t, WriteShards(dir, tensors, map[string]string{"k": "v"}, 200))
	f := must(Open(dir))
	defer f.Close()
	require.Equal(t, len(tensors), f.Len())

	found := 0
	for file, h := range f.Headers() {
		data := must(os.ReadFile(filepath.Join(dir, file)))
		for _, info := range h.Tensors {
			x := must(f.Tensor(info.Name))
			require.Equal(t, x.DType(), info.DType)
			require.Equal(t, x.Shape(), info.Shape)
			require.True(t, bytes.Equal(appended[byte](x), data[h.DataStart+info.DataOffsets[0]:h.DataStart+info.DataOffsets[1]]))
			found++
		}
	}
	require.Equal(t, len(tensors), found)
	for range f.Headers() {
		break // which must not panic
	}

	h := f.Header()
	require.Zero(t, h.DataStart)
	require.Equal(t, f.Metadata(), h.Metadata)
	whole := filepath.Join(t.TempDir(), "whole.safetensors")
	require.NoError(t, writeBy(func(h *Header) (*Writer, error) { return Create(whole, h) }, f, 0))
	requireCheckpoint(t, whole, tensors)
	one := must(Open(whole))
	defer one.Close()
	require.Equal(t, h.Tensors, one.Header().Tensors, "one after another")

	none := must(Join())
	require.Equal(t, &Header{Tensors: []TensorInfo{}}, none.Header())
	require.Zero(t, none.Len())
}
