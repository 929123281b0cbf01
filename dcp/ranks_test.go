package dcp

import (
	"archive/tar"
	"compress/bzip2"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/torch"
	"github.com/stretchr/testify/require"
)

// rankFolders returns the directories in testdata/ranks: NAME/ranks/ with the files of the ranks of
// a job, and, unless these must be refused, NAME/expected.safetensors with the whole tensors.
func rankFolders(t testing.TB) fstest.MapFS {
	t.Helper()
	packed := must(os.Open(filepath.Join("testdata", "ranks", "cases.tar.bz2")))
	defer packed.Close()
	folders := make(fstest.MapFS)
	for r := tar.NewReader(bzip2.NewReader(packed)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return folders
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			folders[h.Name] = &fstest.MapFile{Data: must(io.ReadAll(r))}
		}
	}
}

// filesOf returns the rank files of one of these directories, by their names.
func filesOf(folders fstest.MapFS, name string) fstest.MapFS {
	files := make(fstest.MapFS)
	for file, content := range folders {
		if rest, ok := strings.CutPrefix(file, name+"/ranks/"); ok {
			files[rest] = content
		}
	}
	return files
}

// TestRankFolders joins the rank files of PyTorch jobs. The results equal, bit for bit, the tensors
// before they were divided. For files that cannot be joined, the error names the problem.
func TestRankFolders(t *testing.T) {
	folders := rankFolders(t)
	var cases []struct{ Name, What, Says string }
	require.NoError(t, json.Unmarshal(must(os.ReadFile(filepath.Join("testdata", "ranks", "cases.json"))), &cases))
	require.Len(t, cases, 47+1)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			f, err := OpenFS(folders, path.Join(c.Name, "ranks"))
			if c.Says != "" {
				require.Error(t, err, c.What)
				require.Regexp(t, regexp.MustCompile("(?i)"+c.Says), strings.ReplaceAll(err.Error(), c.Name, ""))
				require.ErrorAs(t, err, new(*safetensors.FormatError), "the files are at fault")
				return
			}
			require.NoError(t, err, c.What)
			defer f.Close()
			want := must(safetensors.Parse(folders[c.Name+"/expected.safetensors"].Data))
			requireTensors(t, mapOf(want), f)
		})
	}
}

func mapOf(f *safetensors.File) map[string]safetensors.Tensor {
	tensors := make(map[string]safetensors.Tensor)
	for name, t := range f.Tensors() {
		tensors[name] = t
	}
	return tensors
}

// TestRankMissing removes each file of each valid directory in turn. That is always an error, even
// if the file has no elements of any tensor.
func TestRankMissing(t *testing.T) {
	folders := rankFolders(t)
	for _, name := range []string{"fsdp2-4", "fsdp-tp-6-odd", "hsdp", "fsdp1", "fsdp1-mesh", "shardedtensor-pieces", "replicate", "nested-extras", "old-2.1", "old-2.5-fsdp-tp", "twelve"} {
		for file := range filesOf(folders, name) {
			files := filesOf(folders, name)
			delete(files, file)
			_, err := OpenFS(files, ".")
			require.ErrorContains(t, err, "missing", "%s without %s", name, file)
		}
	}
}

// TestRankNames gives the files names without the number of ranks. Their contents then determine
// where each piece belongs, and which file is missing.
func TestRankNames(t *testing.T) {
	folders := rankFolders(t)
	for _, name := range []string{"fsdp2-4", "fsdp1", "hsdp", "fsdp-tp-6-odd"} {
		files := make(fstest.MapFS)
		for file, content := range filesOf(folders, name) {
			number := strings.TrimSuffix(file[strings.LastIndexByte(file, '_')+1:], ".pt")
			files["other_"+string(rune('0'+(number[0]-'0'+1)%byte(len(filesOf(folders, name)))))+".pt"] = content
		}
		f := must(OpenFS(files, "."))
		requireTensors(t, mapOf(must(safetensors.Parse(folders[name+"/expected.safetensors"].Data))), f)
		delete(files, "other_1.pt")
		_, err := OpenFS(files, ".")
		require.ErrorContains(t, err, "missing", name)
	}
}

// TestRankKey: a key selects the dict in each file. Without a key, the dict "model" is taken if
// several dicts hold tensors. A key that no file has is an error.
func TestRankKey(t *testing.T) {
	folders := rankFolders(t)
	want := mapOf(must(safetensors.Parse(folders["nested-extras/expected.safetensors"].Data)))
	for _, key := range []string{"", "model"} {
		f := must(Opener{Key: key}.OpenFS(folders, "nested-extras/ranks"))
		requireTensors(t, want, f)
	}
	_, err := Opener{Key: "optimizer"}.OpenFS(folders, "nested-extras/ranks")
	require.ErrorContains(t, err, `"model_0000005.rank_0.pth": there is no "optimizer"; a key selects one of "model"`)
}

// TestRankFileNames: a file of torch.save that holds a whole model is not a checkpoint of several
// ranks, even if it has a name like the rank files of torchtitan.
func TestRankFileNames(t *testing.T) {
	files := filesOf(rankFolders(t), "verl-folder")
	whole := fstest.MapFS{"model_3.pt": files["extra_state_world_size_4_rank_0.pt"]}
	_, err := OpenFS(whole, ".")
	require.Error(t, err)
	_, err = OpenFS(fstest.MapFS{"notes.txt": {}}, ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestRankCopies reads a replicated tensor that is too large to be compared when the directory is
// opened. Its copies are compared when it is read, and the error names the files of two ranks.
func TestRankCopies(t *testing.T) {
	first := random(rand.New(rand.NewPCG(1, 1)), safetensors.F32, 300, 300)
	data := must(safetensors.Append[byte](nil, first))
	data[len(data)-1]++
	second := must(safetensors.NewTensor(safetensors.F32, []int{300, 300}, data))
	var early int64 = maxEarly
	all := box{[]int{0, 0}, []int{300, 300}}
	joined, err := sameOf("x", []*piece{{all, all, first, "a"}, {all, all, second, "b"}}, &early)
	require.NoError(t, err)
	must(safetensors.Append[byte](nil, must(joined.tensor.Slice(safetensors.Span(0, 299)))))
	_, err = safetensors.Append[byte](nil, joined.tensor)
	require.ErrorContains(t, err, `tensor "x": it differs between the ranks that have it: piece [0:300,0:300] in a is not equal to that in b`)
	require.ErrorAs(t, err, new(*safetensors.FormatError))
	require.False(t, errors.Is(err, fs.ErrNotExist))
}

// TestEarlyCopies: copies of small tensors are compared when the directory is opened, until the
// limit on the bytes read for that is reached.
func TestEarlyCopies(t *testing.T) {
	all := box{[]int{0}, []int{2}}
	pieces := make([]*piece, 3)
	for i := range pieces {
		x := must(safetensors.NewTensor(safetensors.U8, []int{2}, []uint8{1, uint8(i)}))
		pieces[i] = &piece{all, all, x, strconv.Itoa(i)}
	}
	early := int64(2*len(pieces)) + 1
	_, err := sameOf("x", pieces, &early)
	require.ErrorContains(t, err, "it differs between the ranks that have it")
	require.EqualValues(t, 1, early)
	late, err := sameOf("x", pieces, &early)
	require.NoError(t, err)
	require.EqualValues(t, 1, early)
	require.Error(t, errorOf(safetensors.Append[byte](nil, late.tensor)))
}

// TestRankFileAlone: package torch does not mistake one rank's part for a whole tensor, even if
// Skip is set.
func TestRankFileAlone(t *testing.T) {
	folders := rankFolders(t)
	for name, class := range map[string]string{
		"fsdp2-4/ranks/model_world_size_4_rank_1.pt":       "DTensor",
		"fsdp1/ranks/model_world_size_4_rank_1.pt":         "ShardedTensor",
		"nested-extras/ranks/model_0000005.rank_0.pth":     "DTensor",
		"stream-format/ranks/model_world_size_2_rank_1.pt": "DTensor",
	} {
		_, err := torch.Opener{Skip: func(string, error) {}}.OpenFS(folders, name)
		require.ErrorContains(t, err, "a "+class+", a rank's part: open a folder with the files of all ranks", name)
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
}
