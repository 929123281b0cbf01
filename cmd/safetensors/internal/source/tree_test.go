package source

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"

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
	o := &Opener{Context: context.Background()}
	none := func(string) bool { return false }
	files := fstest.MapFS{"a": {}, "sub/b": {}}
	tree := new(Tree)
	require.NoError(t, o.treeIn(tree, files, "x/model", false, none))
	require.Equal(t, "model", tree.Name)
	require.Len(t, tree.Files, 2)
	for _, name := range []string{"", ".", "..", "a/b", "/"} {
		err := o.treeIn(new(Tree), oddFS{files, name}, "x/model", false, none)
		require.ErrorContains(t, err, "is not the name of a file", "%q", name)
	}
	require.NoError(t, o.treeIn(new(Tree), oddFS{fstest.MapFS{"a": {}, "a\xff": {}}, "a\xff"}, "x", false, func(name string) bool { return name != "a" }))
}

// TestEncodedTree: a sum of what a server has compressed would not be that of the file.
func TestEncodedTree(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
	}))
	t.Cleanup(server.Close)
	_, err := (&Opener{Context: t.Context()}).Tree(server.URL+"/x", false, func(string) bool { return false })
	require.ErrorContains(t, err, `Content-Encoding "gzip"`)
}
