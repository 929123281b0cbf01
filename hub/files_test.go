package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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

func TestReadFile(t *testing.T) {
	s := newServer(t)
	s.add("/owner/name/resolve/v1/unet/config.json", []byte("{}"))
	client := newClient(t, s.URL)
	data := must(client.ReadFile(t.Context(), "owner/name", "v1", "unet/config.json"))
	require.Equal(t, "{}", string(data))
	require.ErrorIs(t, errorOf(client.ReadFile(t.Context(), "owner/name", "v1", "none.json")), fs.ErrNotExist)
	require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), "owner/name", "v1", "../secret")), "does not name a file")
	require.Len(t, s.requests, 2)
}

// TestReadFileOffline reads from the cache, and sends nothing.
func TestReadFileOffline(t *testing.T) {
	s := newServer(t)
	client := newClient(t, s.URL) // without an environment
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	t.Setenv("HF_HUB_OFFLINE", "1")
	dir := filepath.Join(cache, "models--owner--name", "snapshots", commitOne)
	writeFile(t, []byte("{}"), dir, "config.json")
	data := must(client.ReadFile(t.Context(), "owner/name", commitOne, "config.json"))
	require.Equal(t, "{}", string(data))
	_, err := client.ReadFile(t.Context(), "owner/name", commitOne, "other.json")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "HF_HUB_OFFLINE is set")
	writeFile(t, nil, dir, "large")
	require.NoError(t, os.Truncate(filepath.Join(dir, "large"), 64<<20+1))
	require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), "owner/name", commitOne, "large")), "it has more than 67108864 bytes")
	require.ErrorContains(t, errorOf(client.Files(t.Context(), "owner/name", commitOne)), "HF_HUB_OFFLINE is set")
	require.Empty(t, s.requests)
}
