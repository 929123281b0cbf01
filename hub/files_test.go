package hub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestFiles lists the files of a revision with one request.
func TestFiles(t *testing.T) {
	s := newServer(t)
	s.add("/api/models/owner/name/revision/main", []byte(`{"id":"owner/name","sha":"`+commitOne+`","siblings":[
		{"rfilename":"config.json","size":3,"blobId":"1111111111111111111111111111111111111111"},
		{"rfilename":"unet/model.safetensors","size":8000000000,"blobId":"2222222222222222222222222222222222222222",
		 "lfs":{"sha256":"`+strings.Repeat("ab", 32)+`","size":8000000000,"pointerSize":135}}]}`))
	client := newClient(t, s.URL)
	client.Token = "t0ken"
	got := must(client.Files(t.Context(), "owner/name", ""))
	require.Equal(t, &Snapshot{commitOne, []FileInfo{
		{Name: "config.json", Size: 3, BlobID: strings.Repeat("1", 40)},
		{Name: "unet/model.safetensors", Size: 8e9, BlobID: strings.Repeat("2", 40), SHA256: strings.Repeat("ab", 32)},
	}}, got)
	require.Len(t, s.requests, 1)
	require.Equal(t, "true", s.requests[0].URL.Query().Get("blobs"))
	require.Equal(t, "Bearer t0ken", s.requests[0].Header.Get("Authorization"))

	require.ErrorIs(t, errorOf(client.Files(t.Context(), "owner/other", "")), fs.ErrNotExist)
	require.ErrorContains(t, errorOf(client.Files(t.Context(), "../name", "")), "does not name a repository")
	require.ErrorContains(t, errorOf((&Client{Endpoint: "nowhere"}).Files(t.Context(), "owner/name", "")), "the endpoint of the hub is not an absolute")
}

// TestNamesOfCommits: a commit is a SHA-1 or a SHA-256 in lower-case hex.
func TestNamesOfCommits(t *testing.T) {
	for n := range 70 {
		commit := strings.Repeat("f", n)
		s := newServer(t)
		s.add("/api/models/owner/name/revision/main", []byte(`{"sha":"`+commit+`"}`))
		got, err := newClient(t, s.URL).Files(t.Context(), "owner/name", "")
		if n != 40 && n != 64 {
			require.ErrorContains(t, err, "it does not name a commit", "%d digits", n)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, commit, got.Commit)
	}
}

// TestFilesRefusesAnswers: an invalid list, or one that is too long, is an error whose text has a
// bounded length.
func TestFilesRefusesAnswers(t *testing.T) {
	long := strings.Repeat("0", 100_000)
	list := func(siblings string) string { return `{"sha":"` + commitOne + `","siblings":[` + siblings + `]}` }
	for _, c := range []struct{ name, text, want string }{
		{"no JSON", `<html>`, "the hub's list of files: invalid character"},
		{"cut short", `{"siblings":1`, "unexpected end"},
		{"no commit", `{"sha":"x"}`, "it does not name a commit"},
		{"name that leaves the repository", list(`{"rfilename":"../../etc/passwd"}`), `"../../etc/passwd" does not name a file`},
		{"no name", list(`{"size":1}`), `"" does not name a file`},
		{"negative size", list(`{"rfilename":"a","size":-1}`), `file "a" has -1 bytes`},
		{"long number", list(`{"size":1` + long + `}`), "cannot unmarshal number 1000"},
		{"long name", list(`{"rfilename":"/` + long + `"}`), `"/000`},
		{"a name twice", list(`{"rfilename":"a","size":1},{"rfilename":"b"},{"rfilename":"\u0061","size":2}`), `duplicate file "a"`},
		{"a long name twice", list(`{"rfilename":"` + long + `"},{"rfilename":"` + long + `"}`), `duplicate file "000`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.add("/api/models/owner/name/revision/main", []byte(c.text))
			got, err := newClient(t, s.URL).Files(t.Context(), "owner/name", "main")
			require.Nil(t, got)
			require.ErrorContains(t, err, c.want)
			require.True(t, strings.HasPrefix(err.Error(), "safetensors: open owner/name"), err)
			require.Less(t, len(err.Error()), 500, "the text of a server is bounded")
		})
	}
}

// TestReadFile reads files from the hub and, offline, only from the cache.
func TestReadFile(t *testing.T) {
	s := newServer(t)
	s.add("/owner/name/resolve/v1/unet/config.json", []byte("{}"))
	client := newClient(t, s.URL)
	read := func(revision, name string) ([]byte, error) {
		return client.ReadFile(t.Context(), "owner/name", revision, name)
	}
	require.Equal(t, "{}", string(must(read("v1", "unet/config.json"))))
	require.ErrorIs(t, errorOf(read("v1", "none.json")), fs.ErrNotExist)
	require.ErrorContains(t, errorOf(read("v1", "../secret")), "does not name a file")
	require.Len(t, s.requests, 2)

	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	t.Setenv("HF_HUB_OFFLINE", "1")
	dir := filepath.Join(cache, "models--owner--name", "snapshots", commitOne)
	writeFile(t, []byte("[]"), dir, "config.json")
	require.Equal(t, "[]", string(must(read(commitOne, "config.json"))))
	_, err := read(commitOne, "other.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "HF_HUB_OFFLINE is set")
	require.ErrorContains(t, errorOf(read(commitOne, "a\x00b")), `"a\x00b": `)
	writeFile(t, nil, dir, "large")
	require.NoError(t, os.Truncate(filepath.Join(dir, "large"), 64<<20+1))
	require.ErrorContains(t, errorOf(read(commitOne, "large")), "it has more than 67108864 bytes")
	require.ErrorContains(t, errorOf(client.Files(t.Context(), "owner/name", commitOne)), "HF_HUB_OFFLINE is set")
	require.Len(t, s.requests, 2)
}

// addRepo serves files as those of the repository owner/name at commitOne, and serves their list.
func (s *server) addRepo(t *testing.T, files map[string]string) {
	var siblings []any
	for name, text := range files {
		s.add("/owner/name/resolve/"+commitOne+"/"+name, []byte(text))
		siblings = append(siblings, map[string]any{"rfilename": name, "size": len(text)})
	}
	s.add("/api/models/owner/name/revision/main", must(json.Marshal(map[string]any{"sha": commitOne, "siblings": siblings})))
}

// TestFS: a repository is a file system that passes fstest.TestFS.
func TestFS(t *testing.T) {
	s := newServer(t)
	files := map[string]string{
		"config.json": "{}\n", "empty": "", "unet/model.safetensors": string(craft(100, 1000)),
		"a/b/c: d%2F.txt": "c", "a/b.txt": "b", "a-b": "", "a0": "",
	}
	s.addRepo(t, files)
	client := newClient(t, s.URL)
	client.Token = "t0ken"
	fsys := must(client.FS(t.Context(), "owner/name", ""))
	require.Len(t, s.requests, 1)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	require.NoError(t, fstest.TestFS(fsys, names...))
	require.Equal(t, commitOne, must(fs.Stat(fsys, "a")).Sys().(*Snapshot).Commit)
	require.Equal(t, "a-b", must(fs.Stat(fsys, "a-b")).Sys().(FileInfo).Name)
	require.Equal(t, fs.ModeDir|0o555, must(fs.Stat(fsys, "a")).Mode(), "directories may be read and entered")
	require.Zero(t, must(fs.Stat(fsys, "a")).Size(), "a directory has no size")
	require.Equal(t, fs.FileMode(0o444), must(fs.Stat(fsys, "a-b")).Mode(), "files may be read")
	for _, r := range s.requests {
		require.Equal(t, "Bearer t0ken", r.Header.Get("Authorization"))
	}

	s.add("/api/models/owner/name/revision/main", []byte(`{"sha":"`+commitOne+`","siblings":[{"rfilename":"config.json"}]}`))
	config := must(must(client.FS(t.Context(), "owner/name", "")).Open("config.json"))
	defer config.Close()
	require.Equal(t, int64(3), must(config.Stat()).Size(), "a list may leave the sizes out")
	require.Equal(t, "{}\n", string(must(io.ReadAll(config))))

	s.addRepo(t, map[string]string{"unet/model.safetensors": string(craft(100, 300_000))})
	fsys = must(client.FS(t.Context(), "owner/name", ""))
	s.requests = nil
	f := must(safetensors.OpenFS(fsys, "unet"))
	defer f.Close()
	require.Equal(t, make([]byte, 300_000), must(safetensors.Append[byte](nil, must(f.Tensor("t")))))
	require.Len(t, s.requests, 2, "a header and the data")
}

// TestReadDirInSteps: an open directory returns the requested number of entries at a time. If that
// number is 0 or less, it returns all remaining entries.
func TestReadDirInSteps(t *testing.T) {
	s := newServer(t)
	s.addRepo(t, map[string]string{"a": "", "b/x": "", "b/y": "", "c": "", "d": "", "e": ""})
	fsys := must(newClient(t, s.URL).FS(t.Context(), "owner/name", ""))
	read := func(d fs.ReadDirFile, n int) string {
		var names []string
		for _, e := range must(d.ReadDir(n)) {
			names = append(names, e.Name())
		}
		return strings.Join(names, "")
	}
	for _, rest := range []int{0, -1, 3, 4} {
		d := must(fsys.Open(".")).(fs.ReadDirFile)
		require.Equal(t, "a", read(d, 1))
		require.Equal(t, "b", read(d, 1))
		require.Equal(t, "cde", read(d, rest))
		require.Empty(t, read(d, 0))
		require.ErrorIs(t, errorOf(d.ReadDir(1)), io.EOF)
	}
}

// TestUnknownSizes: a file is opened even if its size is unknown, because the list lacks it or the
// server does not send it. It is not opened if it is empty although the list gives it a size.
func TestUnknownSizes(t *testing.T) {
	const size = 200_000 // more bytes than the first request returns
	for _, listed := range []int{0, size} {
		s := newServer(t)
		s.add("/api/models/owner/name/revision/main", fmt.Appendf(nil, `{"sha":"%s","siblings":[{"rfilename":"x","size":%d}]}`, commitOne, listed))
		fsys := must(newClient(t, s.URL).FS(t.Context(), "owner/name", ""))
		s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool { // answers without a length, and ignores ranges
			w.(http.Flusher).Flush()
			w.Write(make([]byte, size)) // fails if the client closes the connection early
			return true
		}
		f := must(fsys.Open("x"))
		defer f.Close()
		require.Equal(t, int64(cmp.Or(listed, -1)), must(f.Stat()).Size())
		require.Equal(t, make([]byte, size), must(io.ReadAll(f)))

		s.fault = nil
		s.add("/owner/name/resolve/"+commitOne+"/x", nil)
		_, err := fsys.Open("x")
		if listed == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "open x: it has 0 bytes, the hub lists 200000")
	}
}

// TestFSRefusals: the list of files determines which files exist, without a request. A file is
// refused if its size differs from the size in the list.
func TestFSRefusals(t *testing.T) {
	s := newServer(t)
	s.addRepo(t, map[string]string{"x": "text", "dir/y": "y"})
	client := newClient(t, s.URL)
	fsys := must(client.FS(t.Context(), "owner/name", "main"))
	s.requests = nil
	for name, want := range map[string]error{"z": fs.ErrNotExist, "x/y": fs.ErrNotExist, "../x": fs.ErrInvalid} {
		require.ErrorIs(t, errorOf(fsys.Open(name)), want, name)
		require.ErrorIs(t, errorOf(fs.Stat(fsys, name)), want, name)
	}
	require.ErrorIs(t, errorOf(fs.ReadDir(fsys, "x")), fs.ErrInvalid)
	n, err := must(fsys.Open("dir")).Read(make([]byte, 1))
	require.ErrorIs(t, err, fs.ErrInvalid)
	require.Zero(t, n)
	for _, name := range []string{"z", "x/y", "di", "dir/"} {
		require.Error(t, errorOf(fs.ReadDir(fsys, name)), name)
	}
	require.Empty(t, s.requests, "the list answers")
	s.add("/owner/name/resolve/"+commitOne+"/x", []byte("other text"))
	require.ErrorContains(t, errorOf(fsys.Open("x")), "open x: it has 10 bytes, the hub lists 4")

	s.addRepo(t, map[string]string{"a": "", "a/b": "", "a-b": ""})
	require.EqualError(t, errorOf(client.FS(t.Context(), "owner/name", "main")), `safetensors: open owner/name: the hub's list of files: "a" is a file and a directory`)
	require.ErrorIs(t, errorOf(client.FS(t.Context(), "owner/other", "")), fs.ErrNotExist)
	t.Setenv("HF_HUB_OFFLINE", "1")
	require.ErrorContains(t, errorOf(client.FS(t.Context(), "owner/name", "")), "HF_HUB_OFFLINE is set")
}
