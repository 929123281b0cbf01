package storage

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	for _, name := range []string{"hf://", "hf://o", "hf://o/", "hf:///n", "hf://o/n/../../x", "hf://o/n@refs/heads/main", "hf://o/n@refs", "hf://o/n@", "hf://o/n@/x.safetensors"} {
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

// TestMetered: every way to read a file counts its bytes, and fails with the cause of the context, once that is done, without a byte.
func TestMetered(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(name, []byte("content"), 0o666))
	stopped := errors.New("stopped")
	for way, read := range map[string]func(readable) (int64, string, error){
		"Read": func(r readable) (int64, string, error) {
			p := make([]byte, 7)
			n, err := r.Read(p)
			return int64(n), string(p[:n]), err
		},
		"ReadAt": func(r readable) (int64, string, error) {
			p := make([]byte, 7)
			n, err := r.ReadAt(p, 0)
			return int64(n), string(p[:n]), err
		},
		"WriteTo": func(r readable) (int64, string, error) {
			var b strings.Builder
			n, err := r.(io.WriterTo).WriteTo(&b)
			return n, b.String(), err
		},
		"WriteTo of another file": func(r readable) (int64, string, error) {
			var b strings.Builder
			n, err := metered{struct{ readable }{r.(metered).readable}, r.(metered).s, ""}.WriteTo(&b)
			return n, b.String(), err
		},
		"ReadRanges": func(r readable) (int64, string, error) {
			ranges := meteredRanges{r.(metered), rangesOf{r.(metered).readable}}
			p := make([]byte, 8)
			err := ranges.ReadRanges(func(yield func(int64, []byte) bool) {
				if yield(0, p[:4]) && yield(4, p[4:7]) {
					yield(0, p[7:])
				}
			})
			text, _, _ := strings.Cut(string(p), "\x00")
			return int64(len(text)), text, err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &Session{Context: ctx}
		f, err := os.Open(name)
		require.NoError(t, err)
		n, text, err := read(s.Meter(f, ""))
		require.NoError(t, err, way)
		require.Equal(t, "content", text, way)
		require.EqualValues(t, 7, n, way)
		require.EqualValues(t, 7, s.BytesRead(), way)
		require.NoError(t, errorOf(f.Seek(0, io.SeekStart)))
		cancel(stopped)
		n, text, err = read(s.Meter(f, ""))
		require.ErrorIs(t, err, stopped, way)
		require.Zero(t, n, way)
		require.Empty(t, text, way)
		require.EqualValues(t, 7, s.BytesRead(), way)
		require.NoError(t, f.Close())
	}
}

// rangesOf reads ranges of a file up to the second one.
type rangesOf struct{ readable }

func (r rangesOf) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	n := 0
	for off, dst := range ranges {
		if _, err := r.ReadAt(dst, off); err != nil {
			return err
		}
		if n++; n == 2 {
			break
		}
	}
	return nil
}

func errorOf[T any](_ T, err error) error { return err }

// TestTreeOrder: files are sorted by their whole names, as folders are not, and the number of links to folders is limited.
func TestTreeOrder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/x", "a.x", "a-x", "b"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	s, none := &Session{Context: t.Context()}, func(string) bool { return false }
	names := func(tree *Tree) (names []string) {
		for _, f := range tree.Files {
			names = append(names, f.Name)
		}
		return names
	}
	tree, err := s.Tree(dir, false, none)
	require.NoError(t, err)
	require.Equal(t, []string{"a-x", "a.x", "a/x", "b"}, names(tree))
	require.False(t, tree.Single)
	for link, target := range map[string]string{"l1": "a", "l2": "b", "l3": "none", "out": t.TempDir()} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Skip(err)
		}
		if info, err := os.Lstat(filepath.Join(dir, link)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Skip("links do not look like links, as in wine")
		}
	}
	tree, err = s.Tree(dir, true, none)
	require.NoError(t, err)
	require.Equal(t, []string{"a-x", "a.x", "a/x", "b", "l1/x", "l2"}, names(tree))
	require.Equal(t, []string{"l3"}, tree.Links)
	require.Equal(t, 2, tree.linked, "l1 and out")
	tree, err = s.Tree(dir, false, none)
	require.NoError(t, err)
	require.Equal(t, []string{"l1", "l2", "l3", "out"}, tree.Links)
	for linked, fits := range map[int]bool{maxLinked - 2: true, maxLinked - 1: false, maxLinked: false} {
		tree := &Tree{fsys: s.Local(dir), follow: true, skip: none, linked: linked}
		err := tree.list(".")
		require.Equal(t, fits, err == nil, "%d: %v", linked, err)
		if !fits {
			require.ErrorContains(t, err, "links lead to more than 10000 folders")
		}
	}
	require.NoError(t, os.Symlink(".", filepath.Join(dir, "round")))
	_, err = s.Tree(dir, true, none)
	require.ErrorContains(t, err, "link round leads in a circle")

	_, err = s.Tree("hf://no", false, none)
	require.Error(t, err)
	_, err = s.Tree("-", false, none)
	require.ErrorContains(t, err, "expected a file, a folder, a bucket or the URL of a file")
}

// TestNamed: an error about a source has its name once.
func TestNamed(t *testing.T) {
	s := &Session{Context: t.Context()}
	broken := errors.New("broken")
	at := func(path string, err error) error { return &fs.PathError{Op: "open", Path: path, Err: err} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{broken, "dir/x: broken"},
		{at("dir/x", broken), "dir/x: broken"},
		{at(".", broken), "dir/x: broken"},
		{at("dir/x", at("y", broken)), "dir/x: open y: broken"},
		{at("dir/y", broken), "dir/x: open dir/y: broken"},
		{at("dir/x/y", broken), "open dir/x/y: broken"},
		{at("dir/xy", broken), "dir/x: open dir/xy: broken"},
		{at("dir/z", at("dir/x/y", broken)), "open dir/x/y: broken"},
		{fmt.Errorf("dir/x: reading: %w", broken), "dir/x: reading: broken"},
		{fmt.Errorf("tensor %q: dir/x/y: %w", "t", broken), `tensor "t": dir/x/y: broken`},
		{fmt.Errorf("tensor %q of dir/x/y: %w", "t", broken), `tensor "t" of dir/x/y: broken`},
		{fmt.Errorf("tensor %q: dir/xy: %w", "t", broken), `dir/x: tensor "t": dir/xy: broken`},
		{fmt.Errorf("other dir/x: %w", broken), "dir/x: other dir/x: broken"},
	} {
		err := s.Named("dir/x", c.err)
		require.EqualError(t, err, c.want)
		require.ErrorIs(t, err, broken)
		require.EqualError(t, s.Named("dir/x", err), c.want, "it is named already")
	}
	for name, dir := range map[string]string{ // the folder that is opened, of the file x.npz
		"./x.npz": ".", "y/../x.npz": ".", "./y": "y", "y/.": "y", "a\nb": "a\nb", "./a\nb/": "a\nb", "a\nb/x.npz": "a\nb", "file:///a/x.npz": "/a", "file:///a": "/a",
	} {
		read := s.Local(filepath.FromSlash(dir)).shown("x.npz")
		require.EqualError(t, s.Named(name, fmt.Errorf("%s: reading: %w", read, broken)), read+": reading: broken")
	}
	for _, name := range []string{"https://user:secret@host/dir/x.npz?secret", "https://host/dir/a%20b.npz", "https://host/" + strings.Repeat("long/", 50) + "x.npz"} {
		fsys, file, err := s.Away(name)
		require.NoError(t, err)
		require.Equal(t, Shown(name), fsys.shown(file))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	require.Equal(t, broken, (&Session{Context: ctx}).Named("x", errors.New("other")))
}
