package apitest_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// The tests in this file keep promises of SECURITY.md that no other test has.

// TestHostileTexts: whatever text a file or an index puts into an error, the error is printable and short.
func TestHostileTexts(t *testing.T) {
	const entry = `:{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`
	headers := map[string]string{
		"name of a tensor":    `{"EVIL":{"dtype":"U8"}}`,
		"duplicate tensor":    `{"EVIL"` + entry + `,"EVIL"` + entry + `}`,
		"dtype":               `{"a":{"dtype":"EVIL","shape":[0],"data_offsets":[0,0]}}`,
		"entry":               `{"a":"EVIL"}`,
		"field":               `{"a":{"shape":[0],"EVIL":0,"EVIL":0}}`,
		"metadata key":        `{"__metadata__":{"EVIL":1}}`,
		"duplicate key":       `{"__metadata__":{"EVIL":"","EVIL":""}}`,
		"metadata":            `{"__metadata__":"EVIL"}`,
		"dimension":           `{"a":{"dtype":"U8","shape":["EVIL"],"data_offsets":[0,0]}}`,
		"after the header":    `{}"EVIL"`,
		"name and its offset": `{"EVIL":{"dtype":"U8","shape":[9],"data_offsets":[5,14]}}`,
	}
	indexes := map[string]string{
		"name of a shard":  `{"weight_map":{"a":"EVIL/../x"}}`,
		"shard that lacks": `{"weight_map":{"EVIL":"s","EVILx":"s"}}`,
		"missing shard":    `{"weight_map":{"a":"d/EVIL"}}`,
		"name of a tensor": `{"weight_map":{"EVIL":1}}`,
		"duplicate tensor": `{"weight_map":{"EVIL":"s","EVIL":"s"}}`,
		"metadata key":     `{"metadata":{"EVIL":"","EVIL":""},"weight_map":{}}`,
		"after the index":  `{"weight_map":{}}EVIL`,
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s"), fileOf("{}", 0), 0o666))
	for kind, evil := range map[string]string{
		"long":    strings.Repeat("x", 5000),
		"quotes":  strings.Repeat(`\"`, 3000),
		"control": `\u001b[2J\r\n\u202e\u0085`,
	} {
		for place, header := range headers {
			requireHarmless(t, errorOf(Parse(fileOf(strings.ReplaceAll(header, "EVIL", evil), 0))), kind+", "+place)
		}
		for place, index := range indexes {
			text := strings.ReplaceAll(index, "EVIL", evil)
			name := filepath.Join(dir, "x.safetensors.index.json")
			require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
			_, err := Open(name)
			if errors.As(err, new(*FormatError)) { // an error of the system has the name of a missing shard
				requireHarmless(t, err, kind+", "+place)
			}
			_, err = OpenShards(strings.NewReader(text), func(shard string) (*File, error) {
				if shard != "s" {
					return nil, fs.ErrNotExist
				}
				return Parse(fileOf("{}", 0))
			})
			requireHarmless(t, err, kind+", "+place)
		}
	}
}

// requireHarmless checks that a terminal and a log can take an error.
func requireHarmless(t *testing.T, err error, what string) {
	t.Helper()
	require.Error(t, err, what)
	require.Less(t, len(err.Error()), 2000, what)
	require.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }), "%s: %q", what, err)
}

// TestMetadataMemory: the map that Metadata returns takes at most eleven times the length of the header, with as many
// keys as fit. How much the runtime allocates for a map depends on their number, so there are several lengths.
func TestMetadataMemory(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_ !#$%&'()*+,./:;<=>?@[]^`{|}~"
	shortest := func(b []byte, i int) []byte {
		b = append(b, '"')
		for ; i > 0; i /= len(letters) {
			b = append(b, letters[i%len(letters)])
		}
		return append(b, `":""`...)
	}
	lengths := []int{1 << 20, 1_500_000, 1_700_000, 1_900_000}
	if testplatform.Long() {
		lengths = append(lengths, 73_000_000, near(100_000_000, true))
	}
	for _, n := range lengths {
		f := must(Parse(fileOf(string(filled(n, `{"__metadata__":{`, shortest, "}}")), 0)))
		var metadata map[string]string
		allocated := testplatform.Allocated(func() { metadata = f.Metadata() })
		require.Greater(t, len(metadata), n/11)
		if !testplatform.RaceEnabled {
			require.Less(t, allocated, uint64(min(11*n, 700_000_000)), n)
		}
	}
}

// TestManyDimensions: a slice and a transposition of a shape with very many dimensions take at most 60 bytes for each.
func TestManyDimensions(t *testing.T) {
	const n = 200_000
	file := fileOf(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", n-1)+`1],"data_offsets":[0,1]}}`, 1)
	x := must(must(Parse(file)).Tensor("a"))
	require.Len(t, x.Shape(), n)
	for name, view := range map[string]func() (Tensor, error){
		"Slice":     func() (Tensor, error) { return x.Slice(At(0)) },
		"Transpose": func() (Tensor, error) { return x.Transpose() },
	} {
		var got Tensor
		bytes := testplatform.Allocated(func() { got = must(view()) })
		require.Less(t, bytes, uint64(60*n+1<<16), name)
		require.Equal(t, []byte{0}, appended[byte](got), name)
	}
}

// TestLinksOfFolders: Open follows links, OpenFS of an os.Root refuses those that lead out.
func TestLinksOfFolders(t *testing.T) {
	dir := t.TempDir()
	if !testplatform.HasSymlinks(t) {
		t.Skip("no links on this system")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "m"), 0o777))
	require.NoError(t, WriteFile(filepath.Join(dir, "secret"), checkpointOf(2), nil))
	require.NoError(t, os.Symlink(filepath.Join("..", "secret"), filepath.Join(dir, "m", "model.safetensors")))
	f := must(Open(filepath.Join(dir, "m")))
	require.Equal(t, 2, f.Len())
	require.NoError(t, f.Close())
	for below, name := range map[string]string{".": "m", "m": "."} { // the root of the tree, and the name of the directory in it
		root := must(os.OpenRoot(filepath.Join(dir, below)))
		f, err := OpenFS(root.FS(), name)
		require.Equal(t, below == "m", err != nil, "%v", err)
		if err == nil {
			require.NoError(t, f.Close())
		}
		require.NoError(t, root.Close())
	}
}

// TestWrittenMeanwhile: if a process writes to a file that is open, its names, shapes and offsets stay, because the
// header is a private copy. What Load and Parse have returned does not change at all.
func TestWrittenMeanwhile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is mapped cannot be written to")
	}
	tensors := checkpointOf(3)
	whole := saved(tensors, map[string]string{"k": "v"})
	for way, open := range map[string]func(name string) (*File, error){
		"Open": Open, "Load": Load,
		"NewFile": func(name string) (*File, error) {
			file, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { file.Close() })
			return NewFile(file, int64(len(whole)))
		},
	} {
		name := filepath.Join(t.TempDir(), "model.safetensors")
		require.NoError(t, os.WriteFile(name, whole, 0o666))
		f := must(open(name))
		file := must(os.OpenFile(name, os.O_WRONLY, 0))
		must(file.Write(bytes.Repeat([]byte{0xee}, len(whole))))
		require.NoError(t, file.Close())
		require.Equal(t, []string{"t00", "t01", "t02"}, namesOf(f), way)
		require.Equal(t, map[string]string{"k": "v"}, f.Metadata(), way)
		require.Equal(t, must(ReadHeader(bytes.NewReader(whole))), f.Header(), way)
		if way == "Load" {
			requireTensors(t, tensors, f)
		} else {
			x := must(f.Tensor("t00"))
			require.Equal(t, bytes.Repeat([]byte{0xee}, int(x.Size())), appended[byte](x), way)
		}
		require.NoError(t, f.Close())
	}
	parsed := must(Parse(whole))
	header := parsed.Header()
	clear(whole[:header.DataStart])
	require.Equal(t, header, parsed.Header())
	require.Equal(t, 3, parsed.Len())
	requireTensors(t, tensors, parsed)
}
