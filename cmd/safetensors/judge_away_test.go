package main

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

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
