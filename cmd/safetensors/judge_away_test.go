package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/stretchr/testify/require"
)

// writePipeline writes a pipeline of two models, one of them in shards.
func writePipeline(t *testing.T, dir string) {
	t.Helper()
	writeFolder(t, dir+"/unet", 0)
	for _, name := range must(filepath.Glob(dir + "/unet/model*")) {
		text := must(os.ReadFile(name))
		if filepath.Ext(name) == ".json" {
			text = bytes.ReplaceAll(text, []byte(`"model-`), []byte(`"diffusion_pytorch_model-`))
		}
		require.NoError(t, os.Remove(name))
		write(t, filepath.Join(dir, "unet", "diffusion_pytorch_"+filepath.Base(name)), string(text))
	}
	write(t, dir+"/unet/config.json", `{"_class_name":"U"}`)
	write(t, dir+"/vae/config.json", `{"_class_name":"V"}`)
	succeeds(t, "cp", dir+"/unet", dir+"/vae/diffusion_pytorch_model.safetensors")
	write(t, dir+"/scheduler/scheduler_config.json", "{}")
	write(t, dir+"/model_index.json", `{"_class_name":"P","unet":["diffusers","U"],"vae":["diffusers","V"],"scheduler":["diffusers","DDIMScheduler"]}`)
}

// countOf returns how many files and directories a directory has.
func countOf(t *testing.T, dir string) (n int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n++; return nil }))
	return n
}

// TestCheckRequests: on a hub and in a bucket Check sends at most one request for each file and directory, and a few
// more. A sound pipeline has no findings there.
func TestCheckRequests(t *testing.T) {
	s := startStore(t, fakeS3()) // in a directory of its own
	writePipeline(t, "pipe")
	_, hub := startHub(t, "pipe")
	succeeds(t, "cp", "pipe", "s3://models/pipe", "--with-files")
	for name, requests := range map[string]func() []string{"hf://owner/name": hub, "s3://models/pipe": s.requests} {
		requests()
		opener := &source.Opener{Session: storage.Session{Context: context.Background()}}
		files, err := opener.Directory(name)
		require.NoError(t, err)
		found, err := checkpoint.Check(files, ".")
		require.NoError(t, err)
		require.Empty(t, found)
		sent := requests()
		require.LessOrEqual(t, len(sent), countOf(t, "pipe")+4, "%s: %q", name, sent)
		require.Greater(t, len(sent), 4, "the test counts")
	}
}

// TestSeveralInBucket: the models of a pipeline go to a bucket and come back as they are, and the verbs go through all of
// them there.
func TestSeveralInBucket(t *testing.T) {
	startStore(t, fakeS3()) // in a directory of its own
	writePipeline(t, "pipe")
	succeeds(t, "cp", "pipe", "s3://models/pipe", "--with-files")
	succeeds(t, "cp", "s3://models/pipe", "back", "--with-files")
	require.Equal(t, tree(t, "pipe"), tree(t, "back"))
	require.Equal(t, "equal\n", succeeds(t, "diff", "pipe", "s3://models/pipe"))
	require.Equal(t, succeeds(t, "hash", "pipe", "--tensors"), succeeds(t, "hash", "s3://models/pipe", "--tensors"))
	require.Contains(t, succeeds(t, "ls", "s3://models/pipe"), "vae/x")
	write(t, "sums", succeeds(t, "hash", "pipe"))
	require.Contains(t, succeeds(t, "verify", "s3://models/pipe", "sums"), "vae/diffusion_pytorch_model.safetensors: OK\n")
}

// TestCheckValuesAway: on a hub and in a bucket, check --values reads all models of a folder, and the files that opening the
// models does not read: variants, and files without a model of their own.
func TestCheckValuesAway(t *testing.T) {
	startStore(t, fakeS3()) // in a directory of its own
	writePipeline(t, "pipe")
	nan := map[string]safetensors.Tensor{"x": must(safetensors.NewTensor(safetensors.F32, []int{1}, []float32{float32(math.NaN())}))}
	require.NoError(t, safetensors.WriteFile("nan.safetensors", nan, nil))
	content := string(must(os.ReadFile("nan.safetensors")))
	for i, file := range []string{"vae/diffusion_pytorch_model.fp16.safetensors", "loose/v1.safetensors", "unet/other.safetensors"} {
		dir := fmt.Sprint("pipe", i)
		require.NoError(t, os.CopyFS(dir, os.DirFS("pipe")))
		startHub(t, dir)
		r := runs(t, "check", "--values", "hf://owner/name")
		require.Equal(t, 0, r.code, r.stdout)
		require.Equal(t, "ok       hf://owner/name/unet: 3 tensors, 360 kB\nok       hf://owner/name/vae: 3 tensors, 360 kB\n", r.stdout)
		write(t, filepath.Join(dir, filepath.FromSlash(file)), content)
		startHub(t, dir)
		require.Contains(t, fails1(t, "check", "--values", "hf://owner/name"), "refused  hf://owner/name/"+file+`: tensor "x": 1 NaN, 0 Inf`)
		succeeds(t, "cp", "-q", "pipe", "s3://models/"+dir, "--with-files")
		succeeds(t, "cp", "-q", "nan.safetensors", "s3://models/"+dir+"/"+file)
		require.Contains(t, fails1(t, "check", "--values", "s3://models/"+dir), "refused  s3://models/"+dir+"/"+file+`: tensor "x": 1 NaN, 0 Inf`)
	}
}

// fails1 runs a command that exits with 1, and returns its standard output.
func fails1(t *testing.T, args ...string) string {
	t.Helper()
	r := runs(t, args...)
	require.Equal(t, 1, r.code, r.stderr)
	return r.stdout
}
