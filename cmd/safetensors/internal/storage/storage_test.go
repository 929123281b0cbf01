package storage

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// An oddFS has a file of any name, as buckets may.
type oddFS struct {
	fstest.MapFS
	name string
}

type oddEntry struct {
	fs.DirEntry
	name string
}

func (e oddEntry) Name() string { return e.name }

func (f oddFS) ReadDir(dir string) ([]fs.DirEntry, error) {
	entries, err := f.MapFS.ReadDir(dir)
	return append(entries, oddEntry{entries[0], f.name}), err
}

// TestTreeNames refuses objects whose names are no names of files: a folder named ..
// would be listed for ever.
func TestTreeNames(t *testing.T) {
	o := &Session{Context: t.Context()}
	none := func(string) bool { return false }
	files := fstest.MapFS{"a": {}, "sub/b": {}}
	tree := &Tree{fsys: &FS{session: o, files: files}, skip: none}
	require.NoError(t, tree.list("."))
	require.Len(t, tree.Files, 2)
	for _, name := range []string{"", ".", "..", "a/b", "/"} {
		odd := &Tree{fsys: &FS{session: o, files: oddFS{files, name}}, skip: none}
		require.ErrorContains(t, odd.list("."), "is not the name of a file", "%q", name)
	}
	tree = &Tree{fsys: &FS{session: o, files: oddFS{fstest.MapFS{"a": {}, "a\xff": {}}, "a\xff"}}, skip: func(name string) bool { return name != "a" }}
	require.NoError(t, tree.list("."))
}

// TestTreeOfInvalidName: a name that is not one of this machine is refused, and does not stand for the current folder.
func TestTreeOfInvalidName(t *testing.T) {
	_, err := (&Session{Context: t.Context()}).Tree("file://host/x", false, func(string) bool { return false })
	require.ErrorContains(t, err, "is on another host")
}

// TestEncodedTree: a sum of what a server has compressed would not be that of the file.
func TestEncodedTree(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
	}))
	t.Cleanup(server.Close)
	_, err := (&Session{Context: t.Context()}).Tree(server.URL+"/x", false, func(string) bool { return false })
	require.ErrorContains(t, err, `Content-Encoding "gzip"`)
}

// TestTreeOfServer: a file of a web server is described and read by requests for its content.
func TestTreeOfServer(t *testing.T) {
	server := httptest.NewServer(http.FileServerFS(fstest.MapFS{"x": {Data: []byte("content")}}))
	t.Cleanup(server.Close)
	o := &Session{Context: t.Context()}
	none := func(string) bool { return false }
	tree, err := o.Tree(server.URL+"/x", false, none)
	require.NoError(t, err)
	require.EqualValues(t, 7, tree.Files[0].Size)
	r, err := tree.Files[0].Open()
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, iotest.TestReader(r, []byte("content")))
	_, err = o.Tree(server.URL+"/absent", false, none)
	require.ErrorContains(t, err, "404 Not Found")
}

// TestSplitHub splits hf:// URLs into repository, revision and file.
func TestSplitHub(t *testing.T) {
	for name, want := range map[string][3]string{
		"hf://o/n":                          {"o/n", "", ""},
		"hf://o/n/":                         {"o/n", "", ""},
		"hf://o/n@v1":                       {"o/n", "v1", ""},
		"hf://o/n@v1/unet/x.safetensors":    {"o/n", "v1", "unet/x.safetensors"},
		"hf://o/n@a%2Fb/x.safetensors":      {"o/n", "a/b", "x.safetensors"},
		"hf://o/n@refs/pr/1/x.safetensors":  {"o/n", "refs/pr/1", "x.safetensors"},
		"hf://o/n@refs/convert/parquet":     {"o/n", "refs/convert/parquet", ""},
		"hf://o/n/model.safetensors":        {"o/n", "", "model.safetensors"},
		"hf://o/n.v2@main/folder/of/models": {"o/n.v2", "main", "folder/of/models"},
	} {
		repo, revision, file, err := SplitHub(name)
		require.NoError(t, err, name)
		require.Equal(t, want, [3]string{repo, revision, file}, name)
	}
	for _, name := range []string{"hf://", "hf://o", "hf://o/", "hf:///n", "hf://o/n/../../x", "hf://o/n@refs/heads/main", "hf://o/n@refs"} {
		_, _, _, err := SplitHub(name)
		require.Error(t, err, name)
	}
}

// TestShown: the names of sources in messages have no secrets and no control characters.
func TestShown(t *testing.T) {
	for name, want := range map[string]string{
		"https://user:secret@host/x.safetensors": "https://host/x.safetensors",
		"https://host/x.safetensors?sig=secret":  "https://host/x.safetensors",
		"s3://bucket?key=secret":                 "s3://bucket",
		"hf://owner/name@v2/x":                   "hf://owner/name@v2/x",
		"folder/what?.safetensors":               "folder/what?.safetensors",
		"\x1b":                                   `"\x1b"`,
		"-":                                      "-",
	} {
		require.Equal(t, want, Shown(name))
	}
}
