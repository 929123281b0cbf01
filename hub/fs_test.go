package hub

import (
	"encoding/json"
	"io"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// addRepo serves files as owner/name at commitOne, and their list.
func (s *server) addRepo(t *testing.T, files map[string]string) {
	var siblings []any
	for name, text := range files {
		s.add("/owner/name/resolve/"+commitOne+"/"+name, []byte(text))
		siblings = append(siblings, map[string]any{"rfilename": name, "size": len(text)})
	}
	s.add("/api/models/owner/name/revision/main", must(json.Marshal(map[string]any{"sha": commitOne, "siblings": siblings})))
}

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
	for _, r := range s.requests {
		require.Equal(t, "Bearer t0ken", r.Header.Get("Authorization"))
	}

	s.addRepo(t, map[string]string{"unet/model.safetensors": string(craft(100, 300_000))})
	fsys = must(client.FS(t.Context(), "owner/name", ""))
	s.requests = nil
	f := must(safetensors.OpenFS(fsys, "unet"))
	defer f.Close()
	require.Equal(t, make([]byte, 300_000), must(safetensors.Append[byte](nil, must(f.Tensor("t")))))
	require.Len(t, s.requests, 2, "a header and the data")
}

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
	require.ErrorIs(t, errorOf(must(fsys.Open("dir")).Read(make([]byte, 1))), fs.ErrInvalid)
	require.Empty(t, s.requests, "the list answers")
	s.add("/owner/name/resolve/"+commitOne+"/x", []byte("other text"))
	require.ErrorContains(t, errorOf(fsys.Open("x")), "open x: it has 10 bytes, the hub lists 4")

	s.addRepo(t, map[string]string{"a": "", "a/b": "", "a-b": ""})
	require.ErrorContains(t, errorOf(client.FS(t.Context(), "owner/name", "main")), `"a" is a file and a directory`)
	require.ErrorIs(t, errorOf(client.FS(t.Context(), "owner/other", "")), fs.ErrNotExist)
	t.Setenv("HF_HUB_OFFLINE", "1")
	require.ErrorContains(t, errorOf(client.FS(t.Context(), "owner/name", "")), "HF_HUB_OFFLINE is set")
}

// TestFSWithoutSizes: a list may leave the sizes out.
func TestFSWithoutSizes(t *testing.T) {
	s := newServer(t)
	s.addRepo(t, map[string]string{"x": "text"})
	s.add("/api/models/owner/name/revision/main", []byte(`{"sha":"`+commitOne+`","siblings":[{"rfilename":"x"}]}`))
	f := must(must(newClient(t, s.URL).FS(t.Context(), "owner/name", "")).Open("x"))
	defer f.Close()
	require.Equal(t, int64(4), must(f.Stat()).Size())
	require.Equal(t, "text", string(must(io.ReadAll(f))))
}
