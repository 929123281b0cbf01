package hub

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSums: when a file is read to its end, its content is compared with the sum that the hub
// lists, for every kind of sum and every way of reading. One flipped bit is an error, and so is a
// sum of an unknown kind. If the hub lists no sum, nothing is compared.
func TestSums(t *testing.T) {
	text := string(craft(100, 200_000)) // more bytes than the first request returns
	blob := fmt.Sprintf("blob %d\x00%s", len(text), text)
	flipped := []byte(text)
	flipped[len(text)-1] ^= 1
	const differs = "it does not have the sum that the hub gives"
	for _, c := range []struct{ name, lfs, blob, honest, flipped string }{
		{"LFS", fmt.Sprintf("%x", sha256.Sum256([]byte(text))), strings.Repeat("1", 40), "", differs + ": SHA-256 is "},
		{"Git", "", fmt.Sprintf("%x", sha1.Sum([]byte(blob))), "", differs + ": Git's SHA-1 is "},
		{"Git with SHA-256", "", fmt.Sprintf("%x", sha256.Sum256([]byte(blob))), "", differs + ": Git's SHA-256 is "},
		{"none", "", "", "", ""},
		{"not hex", "x", "", `the hub lists the sum "x"`, `the hub lists the sum "x"`},
		{"SHA-1 in LFS", strings.Repeat("1", 40), "", "neither a SHA-256", "neither a SHA-256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.add("/api/models/owner/name/revision/main", must(json.Marshal(map[string]any{"sha": commitOne, "siblings": []any{
				map[string]any{"rfilename": "x", "size": len(text), "blobId": c.blob, "lfs": map[string]any{"sha256": c.lfs}},
			}})))
			client := newClient(t, s.URL)
			for _, served := range []struct {
				data []byte
				want string
			}{{[]byte(text), c.honest}, {flipped, c.flipped}} {
				s.add("/owner/name/resolve/"+commitOne+"/x", served.data)
				fsys := must(client.FS(t.Context(), "owner/name", ""))
				dir := filepath.Join(t.TempDir(), "copy")
				for way, err := range map[string]error{
					"CopyFS":   os.CopyFS(dir, fsys),
					"ReadFile": errorOf(fs.ReadFile(fsys, "x")),
					"exactly":  readExactly(fsys, "x", len(text)),
				} {
					if served.want == "" {
						require.NoError(t, err, way)
						continue
					}
					require.ErrorContains(t, err, served.want, way)
					require.ErrorContains(t, err, " x: ", way)
				}
			}
		})
	}
}

// readExactly reads n bytes of a file, without a read that returns io.EOF.
func readExactly(fsys fs.FS, name string, n int) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.ReadFull(f, make([]byte, n-1)); err == nil {
		var last int
		if last, err = f.Read(make([]byte, 1)); (last == 1) == (err != nil) {
			return fmt.Errorf("read %d bytes at the end, with an error: %t", last, err != nil)
		}
	}
	if again, failed := f.Read(make([]byte, 1)); err != nil && (again > 0 || failed != err) {
		return fmt.Errorf("the error does not stay: %d bytes, %w", again, failed)
	}
	return err
}

// TestSumOfUnknownSize: Git's sum depends on the size, so it is compared only if the list or the
// server states one. The SHA-256 of LFS is compared in any case.
func TestSumOfUnknownSize(t *testing.T) {
	s := must(newListedSum(FileInfo{BlobID: strings.Repeat("1", 40)}, -1))
	require.NoError(t, s.add([]byte("x"), true))
	s = must(newListedSum(FileInfo{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("xy")))}, -1))
	require.NoError(t, s.add([]byte("x"), false))
	require.NoError(t, s.add([]byte("y"), true))
	s = must(newListedSum(FileInfo{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("xy")))}, -1))
	require.Error(t, s.add([]byte("x"), true))
}

// TestNamesInLists: a name with control characters, which could rewrite a terminal or a log, makes
// the list an error.
func TestNamesInLists(t *testing.T) {
	for _, name := range []string{"a\x1b[2J", "a\nb", "dir\r/x", "\x7f", "\u0085x"} {
		err := errorOf(parseSnapshot(must(json.Marshal(map[string]any{"sha": commitOne, "siblings": []any{map[string]any{"rfilename": name}}}))))
		require.ErrorContains(t, err, "has control characters")
		require.NotContains(t, err.Error(), name)
	}
}

// TestNotModels: names of datasets, spaces and buckets are refused before anything is sent, by
// every func that takes a repository.
func TestNotModels(t *testing.T) {
	s := newServer(t)
	client := newClient(t, s.URL)
	for repo, kind := range map[string]string{
		"datasets/owner/name": "a dataset", "datasets/name": "a dataset", "spaces/owner/name": "a space", "buckets/owner/name": "a bucket",
	} {
		want := fmt.Sprintf("%q names %s on the hub, not a model", repo, kind)
		require.ErrorContains(t, errorOf(client.Open(t.Context(), repo, "")), want)
		require.ErrorContains(t, errorOf(client.OpenFile(t.Context(), repo, "", "x")), want)
		require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), repo, "", "x")), want)
		require.ErrorContains(t, errorOf(client.Files(t.Context(), repo, "")), want)
		require.ErrorContains(t, errorOf(client.FS(t.Context(), repo, "")), want)
		require.ErrorContains(t, errorOf(client.CacheDir(repo, "")), want)
	}
	require.Empty(t, s.requests)
	require.NotContains(t, errorOf(client.CacheDir("owner/datasets", "")).Error(), "not a model")
}
