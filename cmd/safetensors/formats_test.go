package main

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pythontest"
	"github.com/stretchr/testify/require"
)

// TestTorchAway copies files of PyTorch, and indexes of them, from web servers, hubs and
// buckets.
func TestTorchAway(t *testing.T) {
	folders := must(filepath.Abs(filepath.Join("..", "..", "torch", "testdata", "folders")))
	s := startStore(t, fakeS3())
	for to, from := range map[string]string{"repo": "shards", "repo/shards": "shards", "repo/one": "one", "repo/adapter": "adapter"} {
		require.NoError(t, os.CopyFS(to, os.DirFS(filepath.Join(folders, from))))
	}
	write(t, "repo/config.json", `{"torch_dtype":"bfloat16"}`)
	url, requests := startHub(t, "repo")
	for _, name := range append(must(filepath.Glob("repo/*.*")), must(filepath.Glob("repo/*/*.*"))...) {
		key := strings.TrimPrefix(filepath.ToSlash(name), "repo/")
		must(s.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("models"), Key: &key, Body: bytes.NewReader(must(os.ReadFile(name)))}))
	}
	for _, at := range []string{"hf://owner/name", "s3://models", url} {
		for name, want := range map[string]string{
			"": "shards", "/pytorch_model.bin.index.json": "shards", "/one/pytorch_model.bin": "one", "/adapter": "adapter",
			"/shards/pytorch_model.bin.index.json": "shards",
		} {
			if at == url && filepath.Ext(name) == "" {
				continue // a web server has no folders
			}
			args := []string{"cp", "-q", "--force", at + name, "to.safetensors"}
			if want == "shards" {
				args = append(args, "--except", "complex")
			}
			succeeds(t, args...)
			require.Equal(t, "equal\n", succeeds(t, "diff", "to.safetensors", filepath.Join(folders, want+".safetensors")), at+name)
		}
		require.Contains(t, fails(t, 1, "ls", at+"/one/absent.bin"), "absent.bin")
	}
	write(t, "repo/bad/pytorch_model.bin", "PK\x03\x04 and so on")
	for _, name := range []string{"hf://owner/name/bad", "hf://owner/name/bad/pytorch_model.bin"} {
		said := fails(t, 1, "ls", name)
		require.Contains(t, said, "zip")
		require.NotContains(t, said, "model.safetensors")
	}
	requests()
	succeeds(t, "cp", "-q", "hf://owner/name", "half", "--except", "complex", "--dtype", "f16", "--max-shard-size", "1GB")
	require.Contains(t, string(must(os.ReadFile("half/config.json"))), "float16")
	require.Equal(t, 1, strings.Count(strings.Join(requests(), " "), "pytorch_model-00001-of-00002.bin"), "one request")
	require.Contains(t, succeeds(t, "hash", "hf://owner/name/one/pytorch_model.bin"), "  pytorch_model.bin\n")

	succeeds(t, "cp", "to.safetensors", "repo/model.safetensors", "--meta", "first=safetensors")
	require.Contains(t, succeeds(t, "meta", "hf://owner/name"), "first")
	t.Setenv("HF_HUB_OFFLINE", "1")
	require.Contains(t, fails(t, 1, "ls", "hf://owner/name/one/pytorch_model.bin"), "HF_HUB_OFFLINE is set")
}

// TestServerWithoutRanges reads files of a web server that does not support range requests: they are downloaded to a
// temporary file, which is removed, also if there is not enough of it.
func TestServerWithoutRanges(t *testing.T) {
	t.Chdir(t.TempDir())
	temp := mkdir(t, "temp")
	t.Setenv("TMPDIR", must(filepath.Abs(temp)))
	t.Setenv("TMP", must(filepath.Abs(temp)))
	large := counting(t, 100_000)
	require.NoError(t, safetensors.WriteFile("x.safetensors", map[string]safetensors.Tensor{"x": large}, nil))
	require.NoError(t, safetensors.WriteShards("model", map[string]safetensors.Tensor{"y": large, "z": large}, nil, large.Size()))
	short := false
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, err := os.ReadFile("." + r.URL.Path)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		if short {
			data = data[:len(data)/2]
		}
		w.Write(data)
	})
	const note = "safetensors: note: the server does not support range requests: the whole file is downloaded\n"
	for local, away := range map[string]string{"x.safetensors": "/x.safetensors", "model": "/model/model.safetensors.index.json"} {
		got := runs(t, "diff", local, url+away)
		require.Equal(t, 0, got.code, got.stderr)
		require.Equal(t, "equal\n", got.stdout)
		require.Equal(t, note, got.stderr, "once per server")
		require.Empty(t, must(os.ReadDir(temp)))
	}
	succeeds(t, "cp", "-q", url+"/x.safetensors", "y.safetensors")
	require.Equal(t, must(os.ReadFile("x.safetensors")), must(os.ReadFile("y.safetensors")))
	require.Equal(t, succeeds(t, "hash", "x.safetensors"), succeeds(t, "hash", url+"/x.safetensors"))
	short = true
	require.Contains(t, fails(t, 1, "ls", url+"/x.safetensors"), "after")
	require.Empty(t, must(os.ReadDir(temp)))
	for _, at := range []string{url, url + "/", url + "/model/", url + "/model//?x=y"} {
		require.Contains(t, fails(t, 1, "ls", at), "is not the URL of a file: name the file, or the index")
	}
}

// TestTorchRanks has PyTorch load what cp --ranks writes.
func TestTorchRanks(t *testing.T) {
	mesh := filepath.Join("..", "..", "dcp", "testdata", "distcp", "mesh")
	var folders []string
	for _, ranks := range []string{"1", "3", "8"} {
		folders = append(folders, filepath.Join(t.TempDir(), ranks))
		succeeds(t, "cp", mesh, folders[len(folders)-1], "--ranks", ranks)
	}
	args := append([]string{filepath.Join("testdata", "load.py")}, folders...)
	pythontest.Run(t, "SAFETENSORS_TORCH", "torch,safetensors", append(args, mesh+".safetensors")...)
}

// TestFormatTable: the help and the page name each ending that is read, and each that is
// written.
func TestFormatTable(t *testing.T) {
	page := must(os.ReadFile(filepath.Join(repository, "doc", "command.md")))
	_, from, _ := strings.Cut(string(page), "| SRC |")
	from, to, _ := strings.Cut(from, "| DST |")
	to, _, _ = strings.Cut(to, "\n\n")
	help := succeeds(t, "cp", "--help")
	for _, f := range format.Table {
		for _, ending := range f.Endings {
			if f.Open != nil {
				require.Contains(t, from, ending)
				require.Contains(t, succeeds(t, "help", "sources"), ending)
			}
			if f.Write != nil {
				require.Contains(t, to, ending)
				require.Contains(t, help, ending)
			}
		}
	}
}

// TestMap: CONTRIBUTING.md's map has all packages.
func TestMap(t *testing.T) {
	text := must(os.ReadFile(filepath.Join(repository, "CONTRIBUTING.md")))
	for _, e := range must(os.ReadDir("internal")) {
		require.Contains(t, string(text), "\n  internal/"+e.Name()+"/")
	}
}
