package dcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// at returns a piece of random bits for each box. The text of a box, such as "0:2 1:3", has a range
// for each dimension.
func at(dtype safetensors.DType, boxes ...string) (all []Piece) {
	for _, b := range boxes {
		var shape, offsets []int
		for _, span := range strings.Fields(b) {
			var begin, end int
			must(fmt.Sscanf(span, "%d:%d", &begin, &end))
			shape, offsets = append(shape, end-begin), append(offsets, begin)
		}
		all = append(all, must(NewPiece(random(rand.New(rand.NewPCG(2, 1)), dtype, shape...), offsets...)))
	}
	return all
}

// TestPiecesErrors checks the error for pieces that do not form a tensor: it names the tensor, the
// piece and the file.
func TestPiecesErrors(t *testing.T) {
	const u8, f4 = safetensors.U8, safetensors.F4
	for _, c := range []struct {
		rule   string
		pieces []Piece
		want   string
	}{
		{"a hole at the start", at(u8, "2:4"), "no piece holds [0:2], next to piece [2:4] in file 1"},
		{"a hole between", at(u8, "0:2", "3:5"), "no piece holds [2:3], next to piece [0:2] in file 1"},
		{"a hole in a corner", at(u8, "0:1 0:2", "1:2 0:1"), "no piece holds [1:2,1:2], next to piece [1:2,0:1] in file 2"},
		{"no elements at all", at(u8, "2:2 0:2", "0:2 2:2"), "no piece holds [0:2,0:2]"},
		{"a hole before an empty piece", at(u8, "0:2", "3:3"), "no piece holds [2:3], next to piece [0:2] in file 1"},
		{"a hole in the middle of a pinwheel", at(u8, "0:1 0:2", "0:2 2:3", "2:3 1:3", "1:3 0:1"), "no piece holds [1:2,1:2], next to piece [0:2,2:3] in file 2"},
		{"an overlap", at(u8, "0:2", "1:3"), "piece [1:3] in file 2 overlaps piece [0:2] in file 1"},
		{"a piece within another", at(u8, "0:2 0:3", "1:2 1:2"), "piece [1:2,1:2] in file 2 overlaps piece [0:2,0:3] in file 1"},
		{"an overlap and a hole", at(u8, "0:2 0:2", "1:3 1:3"), "no piece holds [0:1,2:3], next to piece [0:2,0:2] in file 1"},
		{"an overlap and a hole at its end", at(u8, "0:1 0:2", "0:2 0:1"), "piece [0:2,0:1] in file 2 overlaps piece [0:1,0:2] in file 1"},
		{"two dtypes", append(at(u8, "0:2"), at(safetensors.F32, "2:4")...), "piece [2:4] in file 2 is F32 [2], piece [0:2] in file 1 is U8 [2]"},
		{"two ranks", at(u8, "0:2", "2:4 0:1"), "piece [2:4,0:1] in file 2 is U8 [2,1], piece [0:2] in file 1 is U8 [2]"},
		{"a scalar and a vector", at(u8, "", "0:1"), "piece [0:1] in file 2 is U8 [1], piece [] in file 1 is U8 []"},
		{"rows that are no whole bytes", at(f4, "0:2 0:1", "0:2 1:2"),
			"concatenating along dimension 1: rows of piece 0, F4 [2,1], have 1 elements of 4 bits, which do not fill whole bytes"},
		{"a cut through a byte", at(f4, "0:1 0:2", "0:2 2:3", "2:3 1:3", "1:3 0:1"),
			"cutting piece [0:2,2:3] in file 2: slicing F4 [2,1]: runs of 1 element of 4 bits do not end on a byte boundary"},
		{"a box of 32 dimensions", at(u8, strings.Repeat("0:1 ", 31)+"1:2"),
			"no piece holds [" + strings.Repeat("0:1,", 31) + "0:1], next to piece [" + strings.Repeat("0:1,", 31) + "1:2] in file 1"},
		{"a box of more", at(u8, strings.Repeat("0:1 ", 32)+"1:2"),
			"no piece holds [" + strings.Repeat("0:1,", 32) + "... 33 dimensions], next to piece [" + strings.Repeat("0:1,", 32) + "... 33 dimensions] in file 1"},
		{"far away", at(u8, "0:2", fmt.Sprintf("%[1]d:%[1]d", math.MaxInt)), fmt.Sprintf("no piece holds [2:%d], next to piece [0:2] in file 1", math.MaxInt)},
	} {
		t.Run(c.rule, func(t *testing.T) {
			var ranks []pieces
			for _, p := range c.pieces {
				ranks = append(ranks, pieces{"x\n": p})
			}
			files := parsed(ranks...)
			_, err := Assemble(files...)
			require.EqualError(t, err, `safetensors: tensor "x\n": `+c.want)
			var broken *safetensors.FormatError
			require.ErrorAs(t, err, &broken)
			require.Equal(t, "x\n", broken.Tensor)
			require.EqualValues(t, -1, broken.Offset)
			for _, f := range files {
				x := must(f.Tensor("x\n"))
				requireSame(t, x, x) // can be read, because Assemble has not closed the file
			}
		})
	}
}

// sharded returns a file with a U8 tensor "x" of this shape, and with text as its sharding
// information. It returns an error if such a file cannot be written.
func sharded(shape []int, text string) (*safetensors.File, error) {
	var b bytes.Buffer
	x := random(rand.New(rand.NewPCG(2, 2)), safetensors.U8, shape...)
	if err := safetensors.Write(&b, map[string]safetensors.Tensor{"x": x}, map[string]string{shardingKey: text}); err != nil {
		return nil, err
	}
	return safetensors.Parse(b.Bytes())
}

// TestShardingInfo reads sharding information, and checks the error of each rule.
func TestShardingInfo(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ text, want string }{
		{`{"x": {"saved_offsets": [0, 0]}}`, ""},
		{" { \"\\u0078\"\t:{\r\"other\":[1.5,{}],\"saved_offsets\":[0,0]}, \"y\": 1}\n", ""},
		{`{"y":` + nested(126) + `,"x":{"saved_offsets":[0,0],"z":` + nested(125) + `}}`, ""},
		{`{"y":` + nested(127) + `,"x":{"saved_offsets":[0,0]}}`, `tensor "y": objects and arrays are nested deeper than 127 levels (at byte 131 of its value)`},
		{`{"y":` + nested(1_000_000), `tensor "y": objects and arrays are nested deeper than 127 levels (at byte 131 of its value)`},
		{`{"x":{"z":` + nested(126) + `}}`, `tensor "x": objects and arrays are nested deeper than 127 levels (at byte 135 of its value)`},
		{``, `expected an object, the pieces, found the end of the text (at byte 0 of its value)`},
		{`null`, `expected an object, the pieces, found 'n' (at byte 0 of its value)`},
		{`{} x`, `expected the end of DCP_SHARDING_INFO, found 'x' (at byte 3 of its value)`},
		{`{"x": [0, 0]}`, `tensor "x": expected an object, the place of a piece, found '[' (at byte 6 of its value)`},
		{`{"x": {}}`, `tensor "x": missing field "saved_offsets" (at byte 5 of its value)`},
		{`{"x": {"saved_offsets": null}}`, `tensor "x": expected '[', found 'n' (at byte 24 of its value)`},
		{`{"x": {"saved_offsets": [0]}}`, `tensor "x": expected offset 2 of 2, its rank, found ']' (at byte 26 of its value)`},
		{`{"x": {"saved_offsets": []}}`, `tensor "x": expected the offset, an integer of 0 or more, found ']' (at byte 25 of its value)`},
		{`{"x": {"saved_offsets": [0,0,0]}}`, `tensor "x": expected the end of 2 offsets, its rank, found ',' (at byte 28 of its value)`},
		{`{"x": {"saved_offsets": [0,-1]}}`, `tensor "x": expected the offset, an integer of 0 or more, found '-' (at byte 27 of its value)`},
		{`{"x": {"saved_offsets": [0,0.0]}}`, `tensor "x": the offset is not written as an integer (at byte 27 of its value)`},
		{`{"x": {"saved_offsets": [0,1e0]}}`, `tensor "x": the offset is not written as an integer (at byte 27 of its value)`},
		{`{"x": {"saved_offsets": [0,00]}}`, `tensor "x": the offset has a leading zero (at byte 27 of its value)`},
		{`{"x": {"saved_offsets": [0,"0"]}}`, `tensor "x": expected the offset, an integer of 0 or more, found '"' (at byte 27 of its value)`},
		{`{"x": {"saved_offsets": [0,9999999999999999999]}}`, fmt.Sprintf(`tensor "x": the offset is above %d (at byte 27 of its value)`, math.MaxInt)},
		{`{"x": {"saved_offsets": [0,0], "saved_offsets": [0,0]}}`, `tensor "x": duplicate field "saved_offsets" (at byte 32 of its value)`},
		{`{"x": {"saved_offsets": [0,0]}, "\u0078": {"saved_offsets": [0,0]}}`, `tensor "x": duplicate tensor name (at byte 33 of its value)`},
		{`{"y": {"saved_offsets": [0,0]}}`, `tensor "x": has no offsets for it`},
		{`{}`, `tensor "x": has no offsets for it`},
	} {
		f, err := Assemble(must(sharded([]int{1, 1}, c.text)))
		if c.want == "" {
			require.NoError(t, err, c.text)
			require.Len(t, f.ParameterCount(), 1)
			continue
		}
		require.Error(t, err, c.text)
		var broken *safetensors.FormatError
		require.ErrorAs(t, err, &broken)
		require.EqualValues(t, -1, broken.Offset)
		message := strings.Replace(err.Error(), "DCP_SHARDING_INFO of file 1: ", "", 1)
		message = strings.Replace(message, "DCP_SHARDING_INFO of file 1 ", "", 1)
		require.NotEqual(t, err.Error(), message, "it names the file")
		require.Equal(t, "safetensors: "+c.want, message)
	}
	// An offset and a size may both be valid while their sum overflows.
	f := must(sharded([]int{1, 1}, fmt.Sprintf(`{"x": {"saved_offsets": [0,%d]}}`, math.MaxInt)))
	require.EqualError(t, errorOf(Assemble(f)), fmt.Sprintf(`safetensors: tensor "x": offset %d plus size 1 in dimension 1 of file 1 overflows`, math.MaxInt))
}

// TestWithoutInfo: the tensors of a file without sharding information are whole tensors, as for
// PyTorch's reader.
func TestWithoutInfo(t *testing.T) {
	x := random(rand.New(rand.NewPCG(2, 1)), safetensors.U8, 2, 3)
	dir := t.TempDir()
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "a.safetensors"), map[string]safetensors.Tensor{"a": x}, nil))
	require.NoError(t, WriteFile(filepath.Join(dir, "b.safetensors"), pieces{"b": must(NewPiece(x))}, nil))
	f := must(Open(dir))
	defer f.Close()
	requireTensors(t, map[string]safetensors.Tensor{"a": x, "b": x}, f)
	require.Nil(t, f.Metadata())
}

// TestFolderErrors checks the error for each kind of directory without a checkpoint.
func TestFolderErrors(t *testing.T) {
	dir := t.TempDir()
	empty, hole, broken := filepath.Join(dir, "empty"), filepath.Join(dir, "hole"), filepath.Join(dir, "broken")
	for _, name := range []string{empty, hole, broken} {
		require.NoError(t, os.MkdirAll(filepath.Join(name, "folder.safetensors", metadataFile), 0o777))
	}
	require.NoError(t, os.WriteFile(filepath.Join(empty, "__0_0.distcp"), nil, 0o666))
	require.NoError(t, WriteFile(filepath.Join(hole, FileName(0)), pieces{"x": at(safetensors.U8, "1:2")[0]}, nil))
	require.NoError(t, WriteFile(filepath.Join(broken, FileName(0)), pieces{}, nil))
	require.NoError(t, os.WriteFile(filepath.Join(broken, FileName(1)), []byte("{"), 0o666))
	none := ": it has .distcp files, but no .metadata, which describes them and is saved last"
	unfilled := `: tensor "x": no piece holds [0:1], next to piece [1:2] in "` + FileName(0) + `"`
	for want, err := range map[string]error{
		"open " + empty + none: errorOf(Open(empty)),
		"open empty" + none:    errorOf(OpenFS(os.DirFS(dir), "empty")),
		"open .: no *.safetensors file and no .metadata in it, and no files of torch.save by ranks": errorOf(OpenFS(os.DirFS(t.TempDir()), ".")),
		"open " + hole + unfilled: errorOf(Open(hole)),
		"open hole" + unfilled:    errorOf(OpenFS(os.DirFS(dir), "hole")),
		"open " + filepath.Join(empty, "folder.safetensors", metadataFile) + ": is a directory":                    errorOf(Open(filepath.Join(empty, "folder.safetensors"))),
		"open ../x: invalid argument: a name in an fs.FS is relative to its root, without empty, . or .. elements": errorOf(OpenFS(os.DirFS(dir), "../x")),
		"open .: the fs.FS is nil": errorOf(OpenFS(nil, ".")),
		"file 1 of 1 is nil":       errorOf(Assemble(nil)),
	} {
		require.EqualError(t, err, "safetensors: "+want)
	}
	require.ErrorIs(t, errorOf(Open(empty)), fs.ErrNotExist)
	require.ErrorIs(t, errorOf(Open(filepath.Join(dir, "missing"))), fs.ErrNotExist)
	_, err := Open(broken)
	require.ErrorContains(t, err, "safetensors: open "+filepath.Join(broken, FileName(1))+": ")
	require.ErrorAs(t, err, new(*safetensors.FormatError))
}

// TestFailingReader: if a piece cannot be read, reading the tensor returns the error of that file.
func TestFailingReader(t *testing.T) {
	x := at(safetensors.U8, "0:64 0:64")[0]
	files, readers := recorded(pieces{"x": must(x.Shard(1, 0, 2))}, pieces{"x": must(x.Shard(1, 1, 2))})
	got := must(must(Assemble(files...)).Tensor("x"))
	readers[1].err = errors.New("the disk failed")
	_, err := safetensors.Append[byte](nil, got)
	require.ErrorIs(t, err, readers[1].err)
	require.Equal(t, 1, strings.Count(err.Error(), "safetensors: "))
	slice := must(got.Slice(safetensors.All(), safetensors.Span(1, 32)))
	_, err = safetensors.Append[byte](nil, slice)
	require.NoError(t, err, "the other file is not needed")
	slice = must(got.Slice(safetensors.All(), safetensors.At(32)))
	require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, slice)), readers[1].err)
}

// FuzzShardingInfo joins two files whose sharding information is an arbitrary text. Nothing must
// panic. encoding/json reads the same offsets from each accepted text, and the tensors have no more
// elements than the files.
func FuzzShardingInfo(f *testing.F) {
	for _, text := range []string{
		`{"x": {"saved_offsets": [0, 0]}}`, `{"x": {"saved_offsets": [2, 0]}}`, `{"x": {"saved_offsets": [0, 3]}}`,
		`{"x": {"saved_offsets": [9223372036854775807, 18446744073709551616]}}`, `{"x": {"saved_offsets": [-1, 1e9]}}`,
		`{"x": {"saved_offsets": []}, "x": {}}`, `{"y": [[[[]]]], "x": {"z": null, "saved_offsets": [0, 3]}}`, `{"\ud83e\udde0": 0}`, `{"x":{}`,
	} {
		f.Add(text, `{"x": {"saved_offsets": [0, 0]}}`)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		var files []*safetensors.File
		for _, text := range []string{first, second} {
			file, err := sharded([]int{2, 3}, text)
			if err != nil {
				return // such metadata cannot be written, because it is not UTF-8
			}
			files = append(files, file)
		}
		joined, err := Assemble(files...)
		if err != nil {
			require.Less(t, len(err.Error()), 2000)
			return
		}
		x := must(joined.Tensor("x"))
		require.LessOrEqual(t, x.Len(), 12)
		require.Len(t, must(safetensors.Append[byte](nil, x)), x.Len())
		for _, text := range []string{first, second} {
			var info map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(text), &info))
			var entry map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(info["x"], &entry))
			var offsets []int
			require.NoError(t, json.Unmarshal(entry["saved_offsets"], &offsets))
			require.Len(t, offsets, 2)
			require.LessOrEqual(t, offsets[0]+2, x.Shape()[0])
			require.LessOrEqual(t, offsets[1]+3, x.Shape()[1])
		}
	})
}
