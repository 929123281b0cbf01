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
		"; name one: show dir/a.safetensors.index.json":                                                                     {"show", indexes},
		"; name those of one model: ls dir/a*-of-00002.safetensors; or join them: cp dir/a*-of-00002.safetensors NEW":       {"ls", shards},
		"; to join those of one model, name them: cp dir/a*-of-00002.safetensors NEW":                                       {"cp", shards},
		"; name one: meta dir/a-00001-of-00002.safetensors; or join those of one model: cp dir/a*-of-00002.safetensors NEW": {"meta", shards},
		"; name them: hash dir/*.safetensors; or join them: cp dir/*.safetensors NEW":                                       {"hash", others},
		"; name one: stats dir/a.safetensors; or join them: cp dir/*.safetensors NEW":                                       {"stats", others},
	} {
		err := howToName(c.verb, "dir", &variant.Several{Usual: "model.safetensors", Names: c.names, List: "them"})
		require.True(t, strings.HasSuffix(filepath.ToSlash(err.Error()), want), "%v", err)
	}
	pipeline := &variant.Members{Err: &fs.PathError{Op: "open", Path: ".", Err: errors.New("no model in it")}, Names: []string{"unet", "vae"}}
	require.EqualError(t, howToName("show", "dir", pipeline), "no model in it; name one of its models: show dir/unet")
	require.Equal(t, fs.ErrNotExist, howToName("ls", "dir", fs.ErrNotExist))
}

// TestDirectoryOfStdin: - is standard input, also beside a folder of that name.
func TestDirectoryOfStdin(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("-", 0o777))
	files, err := newOpener(t).Directory("-")
	require.NoError(t, err)
	require.Nil(t, files)
}
