package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/stretchr/testify/require"
)

// TestFolder: the files next to weights are those that hold no tensors, are not hidden and have at
// most 64 MiB.
func TestFolder(t *testing.T) {
	model, _ := writeModel(t)
	dir := filepath.Dir(model)
	for name, size := range map[string]int64{"config.json": 2, "tokenizer.model": 3, "pytorch_model.bin": 4, "model.ggml": 4, "a.distcp": 4, "all.tar": 4, "Adapter.SafeTensors": 4, "Model.safetensors.Index.json": 4, ".gitattributes": 5, "large.txt": 64<<20 + 1, "most.txt": 64 << 20} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
		require.NoError(t, os.Truncate(filepath.Join(dir, name), size))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o777))
	o := newOpener(t)

	c := must(o.Open(dir))
	defer c.Close()
	require.Equal(t, []string{"all.tar", "config.json", "most.txt", "tokenizer.model"}, must(c.Folder.SideFiles()))
	require.Len(t, must(c.Folder.ReadFile("most.txt")), 64<<20)
	require.Len(t, must(c.Folder.ReadFile("config.json")), 2)
	require.ErrorIs(t, errorOf(c.Folder.ReadFile("none.json")), fs.ErrNotExist)
	require.ErrorContains(t, errorOf(c.Folder.ReadFile("large.txt")), "has more than 67108864 bytes")

	for _, pin := range c.Folder.Pinned() {
		if pin.Name == "config.json" {
			require.Regexp(t, "^sha256:[0-9a-f]{64}$", pin.Tag, "what was read is compared with what another part of a copy reads")
		}
	}

	one := must(o.Open(model))
	defer one.Close()
	require.Len(t, must(one.Folder.ReadFile("config.json")), 2)
	require.ErrorContains(t, errorOf(one.Folder.SideFiles()), "it is a file")

	var none *storage.Folder
	require.ErrorIs(t, errorOf(none.ReadFile("config.json")), fs.ErrNotExist)
	require.ErrorContains(t, errorOf(none.SideFiles()), "it is a file")
}

// TestFolderOfARepository: what is read next to weights, perhaps hours later, is of the commit that
// was listed.
func TestFolderOfARepository(t *testing.T) {
	model, _ := writeModel(t)
	weights := must(os.ReadFile(model))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasSuffix(path, "/unet/model.safetensors"):
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(weights)))
		case path == "/api/models/owner/name/revision/main":
			fmt.Fprintf(w, `{"sha":"%040d","siblings":[{"rfilename":"config.json","size":1},{"rfilename":"unet/config.json","size":2},
				{"rfilename":"unet/model.safetensors","size":%d},{"rfilename":"unet/vocabulary.txt","size":%d}]}`, 1, len(weights), 64<<20+1)
		case path == fmt.Sprintf("/owner/name/resolve/%040d/unet/config.json", 1):
			fmt.Fprint(w, "{}")
		case path == "/owner/name/resolve/main/unet/config.json":
			fmt.Fprint(w, "{ }") // of a later commit
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	c := must(newOpener(t).Open("hf://owner/name/unet"))
	defer c.Close()
	names := must(c.Folder.SideFiles())
	require.Equal(t, []string{"config.json"}, names)
	require.Equal(t, "{}", string(must(c.Folder.ReadFile("config.json"))))
}

// TestLayouts: a layout names the file of each tensor, the index, and the files that were read, but not those that were opened
// as a trial. It is plain if copies of these files under the same names are the same checkpoint: not if an index has an unusual
// name, or has model.safetensors beside it, and not if the names of two shards differ in capitals only, since they are one file
// on some systems.
func TestLayouts(t *testing.T) {
	const index = "model.safetensors.index.json"
	type shards = map[string]string // by tensor
	for name, c := range map[string]struct {
		open   string
		shards shards
		opened []string
		want   *Layout // without Shards, which are the same
		files  []string
	}{
		"one file":                {".", shards{"x": "model.safetensors"}, []string{"model.safetensors"}, &Layout{Plain: true}, []string{"model.safetensors"}},
		"one with another name":   {".", shards{"x": "adapter_model.safetensors"}, []string{"adapter_model.safetensors"}, &Layout{Plain: true}, []string{"adapter_model.safetensors"}},
		"a trial":                 {".", shards{"x": "model.safetensors"}, []string{"a.json", "model.safetensors"}, &Layout{Plain: true}, []string{"model.safetensors"}},
		"two shards":              {".", shards{"x": "a.safetensors", "y": "b.safetensors"}, []string{"a.safetensors", "b.safetensors", index}, &Layout{Index: index, Plain: true}, []string{"a.safetensors", "b.safetensors", index}},
		"capitals":                {".", shards{"x": "a.safetensors", "y": "A.safetensors"}, []string{"A.safetensors", "a.safetensors", index}, &Layout{Index: index}, []string{"A.safetensors", "a.safetensors", index}},
		"a shard with their name": {".", shards{"x": "model.safetensors", "y": "b.safetensors"}, []string{"b.safetensors", "model.safetensors", index}, &Layout{Index: index}, []string{"b.safetensors", "model.safetensors", index}},
		"an index of another name": {"weights.index.json", shards{"x": "a.safetensors", "y": "b.safetensors"}, []string{"a.safetensors", "b.safetensors", "weights.index.json"},
			&Layout{}, []string{"a.safetensors", "b.safetensors"}},
		"of PyTorch": {".", shards{"x": "a.bin", "y": "b.bin"}, []string{"a.bin", "b.bin", "pytorch_model.bin.index.json"},
			&Layout{Index: "pytorch_model.bin.index.json"}, []string{"a.bin", "b.bin", "pytorch_model.bin.index.json"}},
		"an unknown shard": {".", shards{"x": "a.safetensors", "y": "b.safetensors"}, []string{"a.safetensors", index}, nil, nil},
	} {
		fsys := fstest.MapFS{}
		for tensor, file := range c.shards {
			var data bytes.Buffer
			require.NoError(t, safetensors.Write(&data, map[string]safetensors.Tensor{tensor: must(safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1}))}, nil))
			fsys[file] = &fstest.MapFile{Data: data.Bytes()}
		}
		root := "."
		if len(c.shards) > 1 {
			root = index
			fsys[index] = &fstest.MapFile{Data: must(json.Marshal(map[string]shards{"weight_map": c.shards}))}
		}
		f, err := safetensors.OpenFS(fsys, root)
		require.NoError(t, err, name)
		var opened []storage.File
		for _, file := range c.opened {
			opened = append(opened, storage.File{Name: file})
		}
		got := layoutOf(f, c.open, opened)
		if c.want == nil {
			require.Nil(t, got, name)
			continue
		}
		require.Equal(t, c.shards, got.Shards, name)
		require.Equal(t, c.want.Index, got.Index, name)
		require.Equal(t, c.want.Plain, got.Plain, name)
		var files []string
		for _, file := range got.Files {
			files = append(files, file.Name)
		}
		require.Equal(t, c.files, files, name)
	}
}

// TestHowToName: the advice for a folder of several models names one of its indexes, the shards of one model, or all
// files, in a command line with the verb that was used.
func TestHowToName(t *testing.T) {
	indexes := []string{"a.safetensors.index.json", "b.safetensors.index.json"}
	shards := []string{"a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors", "b.safetensors"}
	others := []string{"a.safetensors", "b.safetensors"}
	for want, c := range map[string]struct {
		verb  string
		names []string
	}{
		"; name one: ls dir/a.safetensors.index.json":                                                                       {"ls", indexes},
		"; name one: show dir/a.safetensors.index.json NAME":                                                                {"show", indexes},
		"; name one: cp dir/a.safetensors.index.json DST":                                                                   {"cp", indexes},
		"; name one: dir/a.safetensors.index.json":                                                                          {"merge", indexes},
		"; name one: dir/a.safetensors; or join them: cp dir/*.safetensors NEW":                                             {"diff", others},
		"; name those of one model: ls dir/a*-of-00002.safetensors; or join them: cp dir/a*-of-00002.safetensors NEW":       {"ls", shards},
		"; to join those of one model, name them: cp dir/a*-of-00002.safetensors NEW":                                       {"cp", shards},
		"; name one: meta dir/a-00001-of-00002.safetensors; or join those of one model: cp dir/a*-of-00002.safetensors NEW": {"meta", shards},
		"; name one: ls dir/a.bin.index.json":                                                                               {"ls", []string{"a.bin.index.json", "b.bin"}},
		"; name them: ls dir/*.bin; or join them: cp dir/*.bin NEW":                                                         {"ls", []string{"a.bin", "b.bin.index.json"}},
		"; name them: hash dir/*.safetensors; or join them: cp dir/*.safetensors NEW":                                       {"hash", others},
		"; name one: stats dir/a.safetensors; or join them: cp dir/*.safetensors NEW":                                       {"stats", others},
	} {
		several := &variant.Several{Usual: "model.safetensors", Names: c.names, List: "them"}
		err := howToName(c.verb, "dir", func(_, _ string) bool { return true }, several)
		require.True(t, strings.HasSuffix(filepath.ToSlash(err.Error()), want), "%v", err)
		err = howToName(c.verb, "dir", func(_, _ string) bool { return false }, several)
		require.NotContains(t, err.Error(), "join")
		require.Contains(t, err.Error(), "; name ")
	}
	pipeline := &variant.Members{Err: &fs.PathError{Op: "open", Path: ".", Err: errors.New("no model in it")}, Names: []string{"unet", "vae"}}
	require.EqualError(t, howToName("show", "dir", nil, pipeline), "no model in it; name one of its models: show dir/unet NAME")
	require.Equal(t, fs.ErrNotExist, howToName("ls", "dir", nil, fs.ErrNotExist))
}

// TestCanJoin: files are joined unless two of them have a tensor of the same name, even if their names have brackets, which a
// pattern would take for a class.
func TestCanJoin(t *testing.T) {
	dir := t.TempDir()
	for name, tensor := range map[string]string{
		"x[1]-00001-of-00002.safetensors": "a", "x[1]-00002-of-00002.safetensors": "a", "x[-00001-of-00002.safetensors": "a", "x[-00002-of-00002.safetensors": "b",
		".hidden.bin": "a", "broken.bin": "a",
	} {
		one := must(safetensors.NewTensor(safetensors.U8, nil, []byte{1}))
		require.NoError(t, safetensors.WriteFile(filepath.Join(dir, name), map[string]safetensors.Tensor{tensor: one}, nil))
	}
	fsys := (&storage.Session{Context: t.Context()}).Local(dir)
	require.False(t, canJoin(fsys, "x[1]", "-of-00002.safetensors"))
	require.True(t, canJoin(fsys, "x[-", "-of-00002.safetensors"))
	require.True(t, canJoin(fsys, "x[-00001", ".safetensors"))
	require.False(t, canJoin(fsys, "", ".bin"))
}

// TestDirectoryOfStdin: - is standard input, also beside a folder of that name.
func TestDirectoryOfStdin(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("-", 0o777))
	files, err := newOpener(t).Directory("-")
	require.NoError(t, err)
	require.Nil(t, files)
}

// TestNotesOnOthers: the notes on a folder name the safetensors files that are no part of the model, but not its variants, folders,
// or files of other formats.
func TestNotesOnOthers(t *testing.T) {
	const index = "model.safetensors.index.json"
	one, two := "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for name, c := range map[string]struct {
		files string // empty.* has no bytes
		want  []string
	}{
		"alone":                {"model.safetensors", nil},
		"variants":             {"model.safetensors model.fp16.safetensors", nil},
		"a folder":             {"model.safetensors x.safetensors/config.json", nil},
		"another format":       {"model.safetensors x.npz", nil},
		"one other":            {"model.safetensors adapter.safetensors", []string{"adapter.safetensors is no part of the model and is not read"}},
		"two others":           {"model.safetensors b.safetensors c.safetensors", []string{"2 files, such as b.safetensors, are no part of the model and are not read"}},
		"shards":               {"model.safetensors " + one + " " + two, []string{"model.safetensors is taken, not the 2 shards beside it (from " + one + " on)"}},
		"shards and an index":  {"model.safetensors " + one + " " + two + " " + index, []string{"model.safetensors is taken, not the 2 shards beside it (from " + one + " on); name " + index + " to take them"}},
		"shards of a variant":  {"model.safetensors model.fp16-00001-of-00001.safetensors", nil},
		"shards of another":    {"model.safetensors other-00001-of-00001.safetensors", nil},
		"an index, and others": {one + " " + two + " " + index + " x.safetensors", []string{"x.safetensors is no part of the model and is not read"}},
		"an index":             {one + " " + two + " " + index, nil},
		"both kinds":           {"model.safetensors " + one + " x.safetensors", []string{"model.safetensors is taken, not the 1 shard beside it (from " + one + " on)", "x.safetensors is no part of the model and is not read"}},
	} {
		dir := t.TempDir()
		for i, file := range strings.Fields(c.files) {
			at := filepath.Join(dir, filepath.FromSlash(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o777))
			if file == index {
				require.NoError(t, os.WriteFile(at, fmt.Appendf(nil, `{"weight_map":{"x%d":%q,"x%d":%q}}`, strings.Count(c.files[:strings.Index(c.files, one)], " "), one, 1+strings.Count(c.files[:strings.Index(c.files, one)], " "), two), 0o666))
				continue
			}
			require.NoError(t, safetensors.WriteFile(at, map[string]safetensors.Tensor{fmt.Sprint("x", i): must(safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1}))}, nil))
		}
		o, notes := newOpener(t), []string(nil)
		o.Note = func(text string) { notes = append(notes, strings.TrimPrefix(text, storage.Shown(dir)+": ")) }
		src, err := o.Open(dir)
		require.NoError(t, err, name)
		require.NoError(t, src.Close())
		require.Equal(t, c.want, notes, name)
	}
}

// TestDirectory: a name that does not stand for a folder has no directory, and is no error here, since opening it returns the error.
func TestDirectory(t *testing.T) {
	model, _ := writeModel(t)
	dir := filepath.Dir(model)
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	o := newOpener(t)
	for name, found := range map[string]bool{
		dir: true, "file://" + filepath.ToSlash(dir): true, model: false, filepath.Join(dir, "none"): false, "": false, "-": false,
		"http://127.0.0.1:1/x": false, "https://127.0.0.1:1/x/": false, "file://host/x": false,
	} {
		files, err := o.Directory(name)
		require.NoError(t, err, name)
		require.Equal(t, found, files != nil, name)
		if found {
			require.Len(t, must(fs.ReadDir(files, ".")), 1, name)
		}
	}
}

// TestCloseFails: an error of closing any of the files of a source is that of Close, which closes all of them, the last first, once.
func TestCloseFails(t *testing.T) {
	broken := fmt.Errorf("broken")
	var closed []int
	c := new(Checkpoint)
	for i := range 3 {
		c.closers = append(c.closers, func() error {
			closed = append(closed, i)
			if i == 1 {
				return broken
			}
			return nil
		})
	}
	require.ErrorIs(t, c.Close(), broken)
	require.NoError(t, c.Close())
	require.Equal(t, []int{2, 1, 0}, closed)
}
