package storage

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/gosafetensors/safetensors/hub"
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

// A seekable has the methods of a file that can be read from any place.
type seekable struct{ *strings.Reader }

func (seekable) Close() error { return nil }

// TestCopyFrom: a file is copied from any offset to its end. A file that has become shorter or longer, or that can only be read
// from its start, is an error.
func TestCopyFrom(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		open     func() (io.ReadCloser, error)
		size     int64
		off      int64
		want     string
		mismatch string
	}{
		"all":             {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abcdef")}, nil }, 6, 0, "abcdef", ""},
		"the rest":        {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abcdef")}, nil }, 6, 2, "cdef", ""},
		"one byte":        {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abcdef")}, nil }, 6, 5, "f", ""},
		"nothing":         {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abcdef")}, nil }, 6, 6, "", ""},
		"of unknown size": {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abcdef")}, nil }, -1, 0, "abcdef", ""},
		"shorter, all":    {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abc")}, nil }, 6, 0, "abc", "x has changed since it was opened: 3 bytes, was 6 bytes"},
		"longer, all":     {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abc")}, nil }, 2, 0, "abc", "x has changed since it was opened: 3 bytes, was 2 bytes"},
		"empty":           {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abc")}, nil }, 0, 0, "abc", "x has changed since it was opened: 3 bytes, was 0 bytes"},
		"shorter":         {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abc")}, nil }, 6, 2, "c", "x has changed since it was opened: 3 bytes, was 6 bytes"},
		"longer":          {func() (io.ReadCloser, error) { return seekable{strings.NewReader("abcdef")}, nil }, 4, 2, "cd", ""}, // its tag tells
		"from its start":  {func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abcdef")), nil }, 6, 0, "abcdef", ""},
		"from its start only": {func() (io.ReadCloser, error) {
			return io.NopCloser(io.LimitReader(strings.NewReader("abcdef"), 6)), nil
		}, 6, 1, "", "x can only be read from its start"},
		"fails":            {func() (io.ReadCloser, error) { return nil, broken }, 6, 0, "", "broken"},
		"fails in between": {func() (io.ReadCloser, error) { return nil, broken }, 6, 1, "", "broken"},
		"ends with an error": {func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken))), nil
		}, 6, 0, "ab", "broken"},
	} {
		var got strings.Builder
		err := File{Name: "x", Size: c.size, Open: c.open}.CopyFrom(&got, c.off)
		require.Equal(t, c.want, got.String(), name)
		if c.mismatch == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, c.mismatch, name)
		}
	}
}

// TestContent: what identifies the content of a remote file is the sum of the hub, or an ETag that is not weak. Dates and the
// times of local files do not.
func TestContent(t *testing.T) {
	for want, f := range map[string]File{
		"6162":    {Hub: &HubFile{sum: []byte("ab")}, Tag: `"v1"`, Size: 1},
		`"v1"`:    {Tag: `"v1"`},
		"0x8D":    {Tag: "0x8D", Size: 1},
		"weak":    {Tag: `W/"v1"`, Size: 1},
		"a date":  {Tag: "Tue, 01 Jan 2030 00:00:00 GMT", Size: 1},
		"a path":  {Tag: `"v1"`, Path: "x", Size: 1},
		"no size": {Tag: `"v1"`, Size: -1},
	} {
		if strings.Contains(want, " ") || want == "weak" {
			want = ""
		}
		require.Equal(t, want, f.Content())
	}
}

// TestHubFile: the hub lists SHA-256 sums for large files, and the SHA-1 or SHA-256 of git blobs for others. Any other sum is
// refused.
func TestHubFile(t *testing.T) {
	sha1, sha256 := strings.Repeat("a1", 20), strings.Repeat("b2", 32)
	for _, c := range []struct {
		info hub.FileInfo
		git  bool
		hash string // of three bytes abc, in hexadecimal
	}{
		{hub.FileInfo{SHA256: sha256}, false, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{hub.FileInfo{SHA256: sha256, BlobID: sha1}, false, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{hub.FileInfo{BlobID: sha1}, true, "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"},
		{hub.FileInfo{BlobID: sha256}, true, "c1cf6e465077930e88dc5136641d402f72a229ddd996f627d60e9639eaba35a6"},
	} {
		f, err := hubFile(c.info)
		require.NoError(t, err)
		require.Equal(t, c.git, f.git)
		h := f.Hash(3)
		io.WriteString(h, "abc")
		require.Equal(t, c.hash, hex.EncodeToString(h.Sum(nil)))
	}
	for _, info := range []hub.FileInfo{{}, {SHA256: sha1}, {SHA256: "b2"}, {BlobID: "b2"}, {SHA256: strings.Repeat("zz", 32)}, {BlobID: sha1 + "b2"}} {
		info.Name = "x"
		_, err := hubFile(info)
		require.EqualError(t, err, fmt.Sprintf("the hub gives \"x\" the sum %q", cmp.Or(info.SHA256, info.BlobID)))
	}
}
