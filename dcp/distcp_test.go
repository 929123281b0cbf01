package dcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A held is an open checkpoint, with the entries that Skip was called for.
type held struct {
	*safetensors.File
	refused map[string]error // reasons, by the names of tensors
	objects []string         // names of Python objects
}

// openSkipping opens a checkpoint, and leaves out the entries that safetensors cannot hold.
func openSkipping(fsys fs.FS, dir string) (*held, error) {
	h := &held{refused: make(map[string]error)}
	f, err := Opener{Skip: func(name string, why error) {
		if errors.Is(why, errors.ErrUnsupported) {
			h.refused[name] = why
		} else {
			h.objects = append(h.objects, name)
		}
	}}.OpenFS(fsys, dir)
	if err != nil {
		return nil, err
	}
	h.File = f
	return h, nil
}

// requireFolder compares checkpoints that generate.py has written to a directory with the
// safetensors files next to them.
func requireFolder(t *testing.T, folder string, names ...string) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			c := must(openSkipping(os.DirFS(folder), name))
			requireTensors(t, loaded(filepath.Join(folder, name+".safetensors")), c.File)
			require.Empty(t, c.refused)
			switch name {
			case "one":
				require.Equal(t, []string{"epoch"}, c.objects)
			case "alone":
				require.Equal(t, []string{"rank"}, c.objects)
			default:
				require.Equal(t, []string{"args", "list.1", "optimizer.param_groups.0.betas"}, c.objects[:3])
			}
			require.NoError(t, c.Close())
			for _, x := range c.Tensors() {
				if x.Len() > 0 {
					require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, x)), fs.ErrClosed)
				}
			}
		})
	}
}

// TestDistcpGolden reads checkpoints that PyTorch wrote, and compares every tensor.
func TestDistcpGolden(t *testing.T) {
	requireFolder(t, "testdata/distcp", "one", "ranks", "mesh", "alone")
}

// TestTorchDistcp compares checkpoints that the installed PyTorch writes. They hold other numbers
// than the golden ones. One has a file for each chunk, and one was written by several threads.
func TestTorchDistcp(t *testing.T) {
	folder := t.TempDir()
	script(t, "testdata/distcp/generate.py")(folder, "1")
	requireFolder(t, folder, "one", "ranks", "mesh", "files", "threads", "alone")
	c := must(openSkipping(os.DirFS(folder), "safetensors"))
	defer c.Close()
	requireTensors(t, loaded(filepath.Join(folder, "safetensors.safetensors")), c.File)
}

// TestAlone: the metadata of all ranks must agree, and the file of no rank may be missing. Copies of a chunk
// are compared when they are read.
func TestAlone(t *testing.T) {
	copied := func() string {
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/distcp/alone")))
		return dir
	}
	replace := func(name, old, new string) string {
		dir := copied()
		name = filepath.Join(dir, name)
		data := must(os.ReadFile(name))
		require.Contains(t, string(data), old)
		require.NoError(t, os.WriteFile(name, []byte(strings.Replace(string(data), old, new, 1)), 0o666))
		return dir
	}
	refused := func(dir, want string) {
		t.Helper()
		_, err := openSkipping(os.DirFS(dir), ".")
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*safetensors.FormatError))
	}
	for _, name := range []string{"__0.metadata", "__3.metadata"} {
		dir := copied()
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		refused(dir, fmt.Sprintf("%q is missing", name))
	}
	refused(replace("__1.metadata", "\x8c\x04rank", "\x8c\x05own.0"), `tensor "own.0": it is a tensor in __0.metadata, and a Python object in the file of another rank`)
	refused(replace("__2.metadata", "\x8c\x05int64", "\x8c\x05int32"), `tensor "replicated": it is torch.int64 of size [5] in __0.metadata, and torch.int32 of size [5] in __2.metadata`)
	refused(replace("__2.metadata", "K\x07K\x05\x86", "K\x08K\x05\x86"), `tensor "rows": it is torch.float32 of size [7,5] in __0.metadata, and torch.float32 of size [8,5] in __2.metadata`)
	dir := copied()
	require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), nil, 0o666))
	refused(dir, `.metadata and "__0.metadata" are of two saves`)

	c := must(openSkipping(os.DirFS(replace("__2_0.distcp", "\x04\x00\x00\x00\x00\x00\x00\x00", "\x05\x00\x00\x00\x00\x00\x00\x00")), "."))
	defer c.Close()
	err := errorOf(safetensors.Append[int64](nil, must(c.Tensor("replicated"))))
	require.ErrorContains(t, err, `tensor "replicated": it differs between the ranks that have it: piece [0:5] in "__0_0.distcp" is not equal to that in "__2_0.distcp"`)
	require.ErrorAs(t, err, new(*safetensors.FormatError))
}

// A counted file system counts its open files, their reads and the bytes that are read.
type counted struct {
	fs.FS
	panics      string       // opening the file with this name panics
	plain       bool         // whether files have no ReadAt
	open, most  atomic.Int64 // number of files that are open, and the largest such number so far
	read, reads atomic.Int64 // number of bytes read, and of reads that returned any
}

func (c *counted) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(c.FS, name) }

func (c *counted) Open(name string) (fs.File, error) {
	if name == c.panics {
		panic("no such luck")
	}
	f, err := c.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if c.plain {
		return struct{ fs.File }{f}, nil
	}
	for n := c.open.Add(1); n > c.most.Load(); {
		c.most.Store(n)
	}
	return countedFile{f, c}, nil
}

type countedFile struct {
	fs.File
	c *counted
}

func (f countedFile) Read(p []byte) (int, error) { return f.count(f.File.Read(p)) }

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	return f.count(f.File.(io.ReaderAt).ReadAt(p, off))
}

func (f countedFile) count(n int, err error) (int, error) {
	f.c.read.Add(int64(n))
	if n > 0 {
		f.c.reads.Add(1)
	}
	return n, err
}

func (f countedFile) Close() error {
	f.c.open.Add(-1)
	return f.File.Close()
}

// TestDistcpReadsOnlyWhatIsNeeded: opening reads only .metadata, and reading a tensor reads only
// its chunks.
func TestDistcpReadsOnlyWhatIsNeeded(t *testing.T) {
	fsys := &counted{FS: os.DirFS("testdata/distcp")}
	c := must(openSkipping(fsys, "mesh"))
	require.Equal(t, must(os.Stat("testdata/distcp/mesh/.metadata")).Size(), fsys.read.Swap(0))
	require.EqualValues(t, 1, fsys.reads.Load())
	must(safetensors.Append[byte](nil, must(c.Tensor("model.replicated"))))
	require.Less(t, fsys.read.Load(), int64(6000))
	require.EqualValues(t, 3, fsys.reads.Load(), "of .metadata, of a chunk, and of its data")
	require.NoError(t, c.Close())
}

// TestEdges compares reads of an edges with reads of the same bytes in memory.
func TestEdges(t *testing.T) {
	data := make([]byte, 3*edge)
	for i := range data {
		data[i] = byte(i * i >> 3)
	}
	for _, size := range []int{0, 1, edge, 2 * edge, 2*edge + 1, 3 * edge} {
		r := bytes.NewReader(data[:size])
		e, err := readEdges(r, int64(size))
		require.NoError(t, err)
		require.Contains(t, e.cached, int64(0))
		for _, off := range []int{-1, 0, 1, edge - 1, edge, 2*edge - 1, 2 * edge, 2*edge + 1, size - edge, size - 1, size, size + 1} {
			for _, n := range []int{0, 1, 2, edge, edge + 1, 3 * edge} {
				got, want := make([]byte, n), make([]byte, n)
				gotN, gotErr := e.ReadAt(got, int64(off))
				wantN, wantErr := r.ReadAt(want, int64(off))
				require.Equal(t, want, got, "%d bytes at %d of %d", n, off, size)
				if off >= 0 && off+n <= size {
					require.Equal(t, wantN, gotN)
					continue
				}
				require.Equal(t, wantErr != nil, gotErr != nil, "%d bytes at %d of %d", n, off, size)
			}
		}
	}
	require.ErrorIs(t, errorOf(readEdges(bytes.NewReader(nil), 10)), io.EOF)
}

// obj, dict, list and size write parts of pickles.
func obj(class string, state string) string {
	return "ctorch.distributed.checkpoint.metadata\n" + class + "\n)\x81" + state + "b"
}

func dict(items ...string) string { return "}(" + strings.Join(items, "") + "u" }
func list(items ...string) string { return "](" + strings.Join(items, "") + "e" }
func str(s string) string         { return "\x8c" + string([]byte{byte(len(s))}) + s }
func num(n int) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

func size(n ...int) string {
	s := "ctorch\nSize\n("
	for _, n := range n {
		s += num(n)
	}
	return s + "t\x85R"
}

func boxOf(offsets, sizes []int) string {
	return obj("ChunkStorageMetadata", dict(str("offsets"), size(offsets...), str("sizes"), size(sizes...)))
}

func tensorOf(dtype string, shape []int, chunks ...string) string {
	return obj("TensorStorageMetadata", dict(
		str("properties"), obj("TensorProperties", "(ctorch\n"+dtype+"\nNt"), str("size"), size(shape...), str("chunks"), list(chunks...)))
}

func index(name string, offsets ...int) string {
	return obj("MetadataIndex", dict(str("fqn"), str(name), str("offset"), size(offsets...), str("index"), "N"))
}

func info(file string, offset, length int, more ...string) string {
	return obj("_StorageInfo", dict(append([]string{str("relative_path"), str(file), str("offset"), num(offset), str("length"), num(length)}, more...)...))
}

func metadata(tensors, storage string) string {
	return "\x80\x04" + obj("Metadata", dict(str("state_dict_metadata"), tensors, str("storage_data"), storage)) + "."
}

// folderOf returns a directory with this .metadata and the file x: the .distcp file of
// testdata/one, followed by as many zeros. entryOfOne finds in it the chunk of an F32 tensor with
// shape [3]. Because of the zeros, two chunks may have this place without being larger than the
// file together.
func folderOf(t testing.TB, meta string) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), []byte(meta), 0o666))
	data := must(os.ReadFile("testdata/distcp/one/__0_0.distcp"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), append(data, make([]byte, len(data))...), 0o666))
	return dir
}

// entryOfOne returns the place of the tensor model.w in the .distcp file of testdata/one, in bytes.
func entryOfOne() (offset, length int) {
	c := must(readMetadata(must(os.ReadFile("testdata/distcp/one/.metadata")), maxSteps))
	s := c.stored["model.w"][0]
	return int(s.offset), int(s.length)
}

// TestHandMade reads metadata that PyTorch may write but did not here: empty chunks, chunks that
// are transformed, dtypes and entries that safetensors lacks.
func TestHandMade(t *testing.T) {
	offset, length := entryOfOne()
	pairs := str("x") // becomes pairs of pairs of pairs, whose text would repeat x 2^60 times
	for i := range 60 {
		pairs += "q" + string(rune(i)) + "h" + string(rune(i)) + "\x86"
	}
	dir := folderOf(t, metadata(
		dict(str("w"), tensorOf("float32", []int{2, 3}, boxOf([]int{0, 0}, []int{1, 3}), boxOf([]int{1, 0}, []int{1, 3})),
			str("one"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3}), boxOf([]int{3}, []int{0})),
			str("after"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{0}), boxOf([]int{0}, []int{3})), // the first chunk is empty
			str("empty"), tensorOf("float16", []int{0, 3}, boxOf([]int{0, 0}, []int{0, 3})),
			str("complex"), tensorOf("complex128", []int{3}, boxOf([]int{0}, []int{3})),
			str("packed"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3})),
			str("pairs"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3})),
			str("config"), "ctorch\nBytesStorageMetadata\n)\x81"),
		dict(index("w", 0, 0), info("x", offset, length), index("w", 1, 0), info("x", offset, length), index("one", 0), info("x", offset, length), index("after", 0), info("x", offset, length),
			index("packed", 0), info("x", offset, length, str("transform_descriptors"), list(str("stream.zstd"))),
			index("pairs", 0), info("x", offset, length, str("transform_descriptors"), list(pairs)), index("config"), info("x", 0, 10))))
	c := must(openSkipping(os.DirFS(dir), "."))
	defer c.Close()
	require.Equal(t, []string{"config"}, c.objects)
	require.Equal(t, []string{"complex", "packed", "pairs"}, slices.Sorted(maps.Keys(c.refused)))
	require.ErrorContains(t, c.refused["packed"], `its chunks are transformed by "stream.zstd"`)
	require.ErrorContains(t, c.refused["pairs"], "its chunks are transformed by a tuple of 2")
	require.ErrorContains(t, c.refused["complex"], `safetensors has no dtype for torch.complex128`)
	require.Equal(t, must(safetensors.Append[float32](nil, must(c.Tensor("one")))), must(safetensors.Append[float32](nil, must(c.Tensor("after")))))
	w, err := c.Tensor("w") // the .metadata gives it another shape than its chunk has
	require.NoError(t, err)
	require.Equal(t, "F32 [2,3]", w.String())
	_, err = safetensors.Append[float32](nil, w)
	require.ErrorContains(t, err, `"x": it holds F32 [3], F32 [1,3] is expected`)
}

// TestRefused: each rule of the metadata has an error that names the tensor and the rule.
func TestRefused(t *testing.T) {
	offset, length := entryOfOne()
	there := info("x", offset, length)
	const huge = math.MaxInt/2 + 1
	tooLarge := "overflows"
	if math.MaxInt == math.MaxInt32 { // an int has 32 bits, so that the number of bytes does not overflow
		tooLarge = "does not fit into the"
	}
	long := "X\xe9\x03\x00\x00" + strings.Repeat("w", 1001) // a pickled str that is longer than maxName
	w := func(shape []int, chunks ...string) string {
		return dict(str("w"), tensorOf("float32", shape, chunks...))
	}
	at := func(offset int, sizes ...int) string { return boxOf([]int{offset}, sizes) }
	for name, test := range map[string]struct{ meta, want string }{
		"empty":               {"", "the pickle, at byte 0"},
		"another pickle":      {"\x80\x02}.", "it holds a dict with 0 entries, not the metadata of a distributed checkpoint"},
		"code":                {"\x80\x02cos\nsystem\n" + str("touch executed") + "\x85R.", `it holds an object of "os.system"`},
		"no tensors":          {"\x80\x04" + obj("Metadata", "}") + ".", "it has no state_dict_metadata"},
		"no storage":          {"\x80\x04" + obj("Metadata", dict(str("state_dict_metadata"), "}")) + ".", "it has no storage_data"},
		"entry of an int":     {metadata(dict(str("w"), num(1)), "}"), "the entry of a string is an int"},
		"entry of an object":  {metadata(dict(str("w"), obj("Namespace", "}")), "}"), `tensor "w": its entry is an object of`},
		"no dtype":            {metadata(dict(str("w"), obj("TensorStorageMetadata", "}")), "}"), `tensor "w": it has no dtype`},
		"foreign dtype":       {metadata(dict(str("w"), strings.Replace(tensorOf("float32", nil), "ctorch\nfloat32", "cother\nfloat32", 1)), "}"), `tensor "w": it has no dtype`},
		"negative size":       {metadata(w([]int{-1}), "}"), "its size: -1 is negative"},
		"65 dimensions":       {metadata(w(make([]int, 65)), "}"), "its size: 65 dimensions, at most 64 are read"},
		"size overflows":      {metadata(w([]int{huge, huge}), "}"), fmt.Sprintf("no piece holds [0:%d,0:%d]", huge, huge)},
		"bytes overflow":      {metadata(w([]int{huge}, at(0, huge)), dict(index("w", 0), there)), tooLarge},
		"chunk outside":       {metadata(w([]int{3}, at(1, 3)), "}"), "the chunk at [1] of sizes [3] lies outside of size [3]"},
		"offset outside":      {metadata(w([]int{3}, at(4, 0)), "}"), "the chunk at [4] of sizes [0] lies outside of size [3]"},
		"huge chunk":          {metadata(w([]int{3}, at(huge, huge)), "}"), "lies outside of size [3]"},
		"negative offset":     {metadata(w([]int{3}, at(-1, 3)), "}"), "the offsets of a chunk: -1 is negative"},
		"chunk of less":       {metadata(w([]int{3}, at(0, -3)), "}"), "the sizes of a chunk: -3 is negative"},
		"rank of a chunk":     {metadata(w([]int{3, 1}, at(0, 3)), "}"), "a chunk at [0] of sizes [3] in a tensor of size [3,1]"},
		"hole":                {metadata(w([]int{4}, at(0, 3)), dict(index("w", 0), there)), `no piece holds [3:4], next to piece [0:3] in "x"`},
		"last chunk missing":  {metadata(w([]int{6}, at(0, 3)), dict(index("w", 0), there)), `no piece holds [3:6], next to piece [0:3] in "x"`},
		"no list of chunks":   {metadata(strings.Replace(w([]int{4}), str("chunks"), str("pieces"), 1), "}"), `tensor "w": it has no list of chunks`},
		"no chunks":           {metadata(w([]int{4}), "}"), "no piece holds [0:4]"},
		"overlap":             {metadata(w([]int{4}, at(0, 3), at(1, 3)), dict(index("w", 0), there, index("w", 1), there)), `piece [1:4] in "x" overlaps piece [0:3] in "x"`},
		"twice":               {metadata(w([]int{3}, at(0, 3), at(0, 3)), dict(index("w", 0), there)), `piece [0:3] in "x" overlaps piece [0:3] in "x"`},
		"overlap and hole":    {metadata(w([]int{6}, at(0, 3), at(2, 3)), dict(index("w", 0), there, index("w", 2), there)), "no piece holds [5:6]"},
		"chunk without data":  {metadata(w([]int{3}, at(0, 3)), "}"), "no file has the chunk at [0]"},
		"data elsewhere":      {metadata(w([]int{3}, at(0, 3)), dict(index("w", 1), there)), "no file has the chunk at [0]"},
		"data in two places":  {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), there, index("w", 0), there)), "the chunk at [0] is in two places"},
		"file missing":        {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info("y", 0, 10))), "open y: "},
		"file outside":        {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info("../x", 0, 10))), `"../x" is not the name of a file in the folder`},
		"absolute file":       {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info("/etc/passwd", 0, 10))), `"/etc/passwd" is not the name of a file in the folder`},
		"folder":              {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info(".", 0, 10))), `"." is not the name of a file in the folder`},
		"beyond the file":     {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info("x", huge, 10))), fmt.Sprintf("bytes %d to %d+10 of \"x\", which has", huge, huge)},
		"length beyond":       {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info("x", 0, huge))), fmt.Sprintf("bytes 0 to 0+%d of \"x\", which has", huge)},
		"negative place":      {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), info("x", -1, 10))), "its file, offset or length is missing or invalid"},
		"more than the data":  {metadata(w([]int{1 << 28}, at(0, 1<<28)), dict(index("w", 0), there)), "does not fit into the"},
		"the same data twice": {metadata(w([]int{6}, many(2)...), dict(index("w", 0), info("x", 0, 5000), index("w", 3), info("x", 1000, 5000))), "shares bytes with others"},
		"the same data often": {metadata(w([]int{3000}, many(1000)...), dict(places(1000, there)...)), "shares bytes with others"},
		"long name":           {metadata(dict(long, tensorOf("float32", []int{3}, at(0, 3))), "}"), "a name of 1001 bytes, at most 1000 are read"},
		"long name of data":   {metadata(w([]int{3}, at(0, 3)), dict(strings.Replace(index("w", 0), str("w"), long, 1), there)), "a name of 1001 bytes, at most 1000 are read"},
		"long name of a file": {metadata(w([]int{3}, at(0, 3)), dict(index("w", 0), strings.Replace(there, str("x"), long, 1))), "its file, offset or length is missing or invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := openSkipping(os.DirFS(folderOf(t, test.meta)), ".")
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "safetensors: open ")
			require.Equal(t, name != "file missing", errors.As(err, new(*safetensors.FormatError)), "the bytes are at fault")
			require.Nil(t, c)
		})
	}
	require.NoFileExists(t, "executed")
	require.ErrorIs(t, errorOf(openSkipping(os.DirFS("testdata/distcp"), "nothing")), fs.ErrNotExist)
}

// TestOpenDistcp: Open reads a directory of the operating system. Without Skip, objects are left
// out, and a tensor that safetensors cannot hold is an error. Dicts may be ordered dicts.
func TestOpenDistcp(t *testing.T) {
	f := must(Open(filepath.Join("testdata", "distcp", "mesh")))
	requireTensors(t, loaded(filepath.Join("testdata", "distcp", "mesh.safetensors")), f)
	require.Nil(t, f.Metadata())
	require.NoError(t, f.Close())

	offset, length := entryOfOne()
	ordered := func(items ...string) string {
		return "ccollections\nOrderedDict\n)R(" + strings.Join(items, "") + "u"
	}
	dir := folderOf(t, metadata(ordered(str("w"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3}))), ordered(index("w", 0), info("x", offset, length))))
	f = must(Open(dir))
	require.Len(t, must(safetensors.Elements[float32](f, "w", 3)), 3)
	require.NoError(t, f.Close())

	dir = folderOf(t, metadata(dict(str("w"), tensorOf("complex128", []int{3}, boxOf([]int{0}, []int{3}))), dict(index("w", 0), info("x", offset, length))))
	_, err := Open(dir)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.EqualError(t, err, "safetensors: open "+dir+`: tensor "w": safetensors has no dtype for torch.complex128`)

	dir = folderOf(t, metadata(dict(str("w"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3}))), dict(index("w", 0), info("y", 0, 10))))
	_, err = Open(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, "y"))
}

// many returns n pickled chunks of three elements each. places returns entries of storage_data that
// give each of these chunks the same place, info.
func many(n int) (chunks []string) {
	for i := range n {
		chunks = append(chunks, boxOf([]int{3 * i}, []int{3}))
	}
	return chunks
}

func places(n int, info string) (items []string) {
	for i := range n {
		items = append(items, index("w", 3*i), info)
	}
	return items
}

// TestSafetensorsInside: with SerializationFormat.SAFETENSORS, the chunks are in a safetensors file
// at the end of a .distcp file. Its header is read once, when the first chunk is read. If a chunk
// is not as .metadata describes it, reading it is an error that gives its place. The same holds for
// a chunk in a file of torch.save.
func TestSafetensorsInside(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("an object")
	require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{
		"w": must(safetensors.NewTensor(safetensors.F32, []int{2, 1}, []float32{1, 2})),
		"b": must(safetensors.NewTensor(safetensors.I8, []int{3}, []int8{3, 4, 5})),
	}, map[string]string{"DCP_VERSION": "1.0"}))
	file := b.Bytes()
	open := func(t *testing.T, dtype string, shape []int, place string, data []byte) *safetensors.File {
		meta := metadata(
			dict(str("w"), tensorOf(dtype, shape, boxOf(make([]int, len(shape)), shape)), str("b"), tensorOf("int8", []int{3}, boxOf([]int{0}, []int{3}))),
			dict(index("w", make([]int, len(shape))...), place, index("b", 0), info("y", 9, 3)))
		dir := folderOf(t, meta)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "y"), data, 0o666))
		fsys := &counted{FS: os.DirFS(dir)}
		c := must(openSkipping(fsys, "."))
		t.Cleanup(func() { c.Close() })
		require.Equal(t, int64(len(meta)), fsys.read.Load())
		return c.File
	}
	f := open(t, "float32", []int{2, 1}, info("y", 9, 8), file)
	require.Equal(t, []float32{1, 2}, must(safetensors.Elements[float32](f, "w", 2, 1)))
	require.Equal(t, []int8{3, 4, 5}, must(safetensors.Elements[int8](f, "b", 3)))

	inside := info("y", 9, 8)
	offset, length := entryOfOne()
	for name, test := range map[string]struct {
		dtype string
		shape []int
		place string
		data  []byte
		want  string
	}{
		"other shape": {"float32", []int{1, 2}, inside, file, `byte 9 of "y": it holds F32 [2,1], F32 [1,2] is expected`},
		"other dtype": {"int32", []int{2, 1}, inside, file, `byte 9 of "y": it holds F32 [2,1], I32 [2,1] is expected`},
		"cut":         {"float32", []int{2, 1}, inside, file[:len(file)-1], `byte 9 of "y": `},
		"more":        {"float32", []int{2, 1}, inside, append(bytes.Clone(file), 0), `byte 9 of "y": `},
		"other names": {"float32", []int{2, 1}, inside, bytes.Replace(file, []byte(`"w":`), []byte(`"v":`), 1), `byte 9 of "y": no tensor is named "w"`},
		"no zip":      {"float32", []int{3}, info("x", offset+8, length-8), file, fmt.Sprintf(`byte %d of "x": `, offset+8)},
		"truncated":   {"float32", []int{3}, info("x", offset, length-8), file, "the zip archive ends before its directory"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, test.dtype, test.shape, test.place, test.data)
			err := errorOf(safetensors.Append[byte](nil, must(f.Tensor("w"))))
			require.ErrorContains(t, err, test.want)
			require.Equal(t, name == "cut" || name == "more", strings.Contains(err.Error(), "(at byte"), "else it says where already")
		})
	}
}

// FuzzMetadata reads mutated metadata next to real files: nothing panics, and no code in it is
// executed.
func FuzzMetadata(f *testing.F) {
	for _, name := range []string{"one", "ranks"} {
		f.Add(must(os.ReadFile(filepath.Join("testdata", "distcp", name, metadataFile))))
	}
	f.Add([]byte("\x80\x02cos\nsystem\n" + str("touch executed") + "\x85R."))
	dir := must(os.MkdirTemp("", "distcp"))
	defer os.RemoveAll(dir)
	require.NoError(f, os.CopyFS(dir, os.DirFS("testdata/distcp/ranks")))
	f.Fuzz(func(t *testing.T, meta []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, metadataFile), meta, 0o666))
		c, err := openSkipping(os.DirFS(dir), ".")
		if err != nil {
			return
		}
		for _, x := range c.Tensors() {
			x.ReadAt(make([]byte, 100), 0)
		}
		require.NoError(t, c.Close())
		require.NoFileExists(t, "executed")
	})
}
