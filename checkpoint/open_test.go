package checkpoint_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestOpenKinds: which of the files of a directory are opened, on this machine and in a file system, and what the
// error says of those that are not.
func TestOpenKinds(t *testing.T) {
	one, two := weights(t, map[string]float32{"one": 1}), weights(t, map[string]float32{"two": 2})
	torch := torchFile(t, map[string]float32{"torch": 3})
	other := torchFile(t, map[string]float32{"other": 4})
	both := index(t, map[string]string{"one": "a.safetensors", "two": "b.safetensors"})
	const diffusers, transformers = `{"_class_name":"U","_diffusers_version":"0.30.0","big":NaN}`, `{"model_type":"new","architectures":["New"]}`
	onlyTwo := index(t, map[string]string{"two": "model-00001-of-00001.safetensors"})
	for name, c := range map[string]struct {
		files         map[string]string
		at            string // the file; default: the directory
		variant, want string // names of tensors, or the error
	}{
		"a file":                      {map[string]string{"x.safetensors": one}, "x.safetensors", "", "one"},
		"a file of any name":          {map[string]string{"x": one}, "x", "", "one"},
		"a file of torch.save":        {map[string]string{"x.pt": torch}, "x.pt", "", "torch"},
		"an index":                    {map[string]string{"m.safetensors.index.json": both, "a.safetensors": one, "b.safetensors": two}, "m.safetensors.index.json", "", "one two"},
		"an index of torch.save":      {map[string]string{"m.bin.index.json": index(t, map[string]string{"torch": "a.bin"}), "a.bin": torch}, "m.bin.index.json", "", "torch"},
		"a part of a distributed one": {map[string]string{"__0_0.distcp": "x"}, "__0_0.distcp", "", "error: is a part of a checkpoint of torch.distributed.checkpoint: open its directory"},
		"a pipeline":                  {map[string]string{"model_index.json": `{"unet":["d","U"]}`, "unet/model.safetensors": one}, "", "", "error: checkpoint.Models lists the directories of its models, to be opened one by one"},
		"a pipeline without weights":  {map[string]string{"model_index.json": `{"unet":["d","U"]}`, "unet/config.json": "{}"}, "", "", "error: no .safetensors file in it, only model_index.json, unet"},
		"safetensors first":           {map[string]string{"model.safetensors": one, "pytorch_model.bin": torch}, "", "", "one"},
		"index first":                 {map[string]string{"m.safetensors.index.json": both, "a.safetensors": one, "b.safetensors": two, "pytorch_model.bin": torch}, "", "", "one two"},
		"torch.save":                  {map[string]string{"pytorch_model.bin": torch, "config.json": "{}"}, "", "", "torch"},
		"files of torch.save":         {map[string]string{"m.bin.index.json": index(t, map[string]string{"torch": "a.bin", "other": "b.bin"}), "a.bin": torch, "b.bin": other}, "", "", "other torch"},
		"the name of a rank":          {map[string]string{"model_0.pt": torch}, "", "", "torch"},
		"files of ranks":              {map[string]string{"model_rank_0.pt": torch, "model_rank_1.pt": torch}, "", "", "torch"},
		"a model beside ranks":        {map[string]string{"pytorch_model.bin": other, "model_rank_0.pt": torch}, "", "", "other"},
		"an adapter beside ranks":     {map[string]string{"adapter_model.bin": other, "model_rank_0.pt": torch}, "", "", "other"},
		"an index beside ranks":       {map[string]string{"pytorch_model.bin.index.json": index(t, map[string]string{"other": "x.bin"}), "x.bin": other, "model_rank_0.pt": torch}, "", "", "other"},
		"a broken file of ranks":      {map[string]string{"model_rank_0.pt": torch, "model_rank_1.pt": "x"}, "", "", `error: "model_rank_1.pt": not made by torch.save`},
		"torch_checkpointing":         {map[string]string{"metadata.pkl": "", "model_0.safetensors": one}, "", "", "error: the ranks of a job saved it with the package torch_checkpointing"},
		"nothing":                     {map[string]string{"README.md": ""}, "", "", "error: "},

		"diffusers, a file":         {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.safetensors": one, "model.safetensors": two}, "", "", "one"},
		"diffusers, shards beside":  {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.safetensors": one, "model.safetensors.index.json": onlyTwo, "model-00001-of-00001.safetensors": two}, "", "", "one"},
		"diffusers, an index":       {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.safetensors.index.json": both, "a.safetensors": one, "b.safetensors": two, "model.safetensors": one}, "", "", "one two"},
		"diffusers, torch.save":     {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.bin": torch, "model.safetensors": two}, "", "", "torch"},
		"diffusers, a variant":      {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.safetensors": two, "diffusion_pytorch_model.fp16.safetensors": one, "model.fp16.safetensors": two}, "", "fp16", "one"},
		"diffusers, only a variant": {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.fp16.safetensors": one, "model.safetensors": two}, "", "", "two"},
		"diffusers, a broken file":  {map[string]string{"config.json": diffusers, "diffusion_pytorch_model.safetensors": "x", "model.safetensors": two}, "", "", "error: diffusion_pytorch_model.safetensors"},
		"transformers":              {map[string]string{"config.json": transformers, "diffusion_pytorch_model.safetensors": one, "pytorch_model.bin": torch}, "", "", "torch"},
		"no library":                {map[string]string{"config.json": `{"_class_name":"U"}`, "diffusion_pytorch_model.safetensors": one, "model.safetensors": two}, "", "", "two"},
		"a broken config":           {map[string]string{"config.json": "{", "diffusion_pytorch_model.safetensors": one, "model.safetensors": two}, "", "", "two"},

		"a variant":               {map[string]string{"model.safetensors": one, "model.fp16.safetensors": two}, "", "fp16", "two"},
		"shards of a variant":     {map[string]string{"model.safetensors": one, "model.fp16-00001-of-00002.safetensors": one, "model.fp16-00002-of-00002.safetensors": two}, "", "fp16", "one two"},
		"an index of a variant":   {map[string]string{"model.safetensors": one, "model.safetensors.index.fp16.json": index(t, map[string]string{"one": "a.fp16.safetensors", "two": "b.fp16.safetensors"}), "a.fp16.safetensors": one, "b.fp16.safetensors": two}, "", "fp16", "one two"},
		"a variant of torch.save": {map[string]string{"model.safetensors": one, "model.fp16.bin": torch}, "", "fp16", "torch"},
		"no such variant":         {map[string]string{"model.safetensors": one, "model.fp16.safetensors": two}, "", "bf16", `error: no file of the variant "bf16" in it`},
		"a broken variant":        {map[string]string{"model.fp16.safetensors": "x"}, "", "fp16", "error: model.fp16.safetensors"},
		"several of a variant":    {map[string]string{"a.fp16.safetensors": one, "b.fp16.safetensors": two}, "", "fp16", "error: a.fp16.safetensors"},
		"a variant of a file":     {map[string]string{"model.fp16.safetensors": one}, "model.fp16.safetensors", "fp16", "error: a variant can be selected only in a directory, and this is not one"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fsys := files(map[string]string{})
			for file, content := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o777))
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o666))
				maps.Copy(fsys, files(map[string]string{"below/" + file: content}))
			}
			o := checkpoint.Opener{Variant: c.variant}
			for where, open := range map[string]func() (*safetensors.File, error){
				dir:     func() (*safetensors.File, error) { return o.Open(filepath.Join(dir, c.at)) },
				"below": func() (*safetensors.File, error) { return o.OpenFS(fsys, strings.TrimSuffix("below/"+c.at, "/")) },
				"sub": func() (*safetensors.File, error) {
					sub, err := fs.Sub(fsys, "below")
					require.NoError(t, err)
					return o.OpenFS(sub, cmp.Or(c.at, "."))
				},
			} {
				f, err := open()
				if text, fails := strings.CutPrefix(c.want, "error: "); fails {
					require.ErrorContains(t, err, text)
					require.ErrorContains(t, err, "safetensors: ")
					if where != "sub" {
						require.ErrorContains(t, err, where)
						require.NotContains(t, err.Error(), "open .")
					}
					require.Equal(t, name == "no such variant" || name == "nothing" || strings.HasPrefix(name, "a pipeline"), errors.Is(err, fs.ErrNotExist))
					continue
				}
				require.NoError(t, err)
				require.Equal(t, c.want, strings.Join(slices.Sorted(maps.Keys(maps.Collect(f.Tensors()))), " "))
				for _, x := range f.Tensors() {
					_, err := safetensors.Append[float32](nil, x)
					require.NoError(t, err)
				}
				require.NoError(t, f.Close())
			}
		})
	}
}

// TestForeign: the error for a directory of a format that is not read names the format and a program that reads it.
func TestForeign(t *testing.T) {
	for file, want := range map[string]string{
		"zero_pp_rank_0_mp_rank_00_optim_states.pt": "DeepSpeed: its zero_to_fp32.py", "mp_rank_00_model_states.pt": "DeepSpeed: its zero_to_fp32.py",
		"x.gguf": "GGUF: llama.cpp reads it", "x.nemo": "NeMo: it is a tar archive", "x.h5": "Keras and TensorFlow", "x.msgpack": "Flax: from_flax=True",
		"x.onnx": "ONNX: onnxruntime reads it", "x.npz": "NumPy: numpy.load reads it", "_CHECKPOINT_METADATA": "Orbax of JAX", "manifest.ocdbt": "Orbax of JAX",
		"latest_checkpointed_iteration.txt": "Megatron-LM", "x.ckpt.data-00000-of-00001": "TensorFlow: tf.train.load_checkpoint",
	} {
		_, err := checkpoint.OpenFS(files(map[string]string{"README.md": "", file: ""}), ".")
		require.ErrorContains(t, err, fmt.Sprintf("no .safetensors file in it, and %q is of %s", file, want))
		found := check(t, files(map[string]string{"README.md": "", file: ""}))
		if strings.HasSuffix(file, ".pt") {
			continue // it is judged as a file of torch.save
		}
		require.Len(t, found, 1, file)
		require.Contains(t, found[0], "missing: the directory has no weights: ")
		require.Contains(t, found[0], want)
	}
	found := check(t, files(map[string]string{"README.md": "", "x.txt": ""}))
	require.Equal(t, []string{`missing: the directory has no weights, only "README.md", "x.txt"`}, found)
	found, want := check(t, files(map[string]string{"a/b/README.md": ""})), []string{`missing: the directory has no weights, only "a"`}
	require.Equal(t, want, found)
}

// TestCheckOfFiles: of a file, Check only says whether it can be opened, and why not.
func TestCheckOfFiles(t *testing.T) {
	fsys := files(map[string]string{"good.safetensors": weights(t, map[string]float32{"a": 1}), "bad.safetensors": "x", "lost.safetensors.index.json": index(t, map[string]string{"a": "gone.safetensors"})})
	for name, want := range map[string]string{"good.safetensors": "", "bad.safetensors": "unreadable: ", "lost.safetensors.index.json": "missing: "} {
		found, err := checkpoint.Check(fsys, name)
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, found)
			continue
		}
		require.Len(t, found, 1)
		require.Contains(t, found[0].String(), want)
		require.Contains(t, found[0].String(), "cannot be opened: ")
	}
	_, err := checkpoint.Check(fsys, "absent.safetensors")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `safetensors: checking "absent.safetensors": `)
}

// A systemFS returns errors with paths of the system, and not with names in the directory.
type systemFS string

func (dir systemFS) Open(name string) (fs.File, error) {
	return os.Open(filepath.Join(string(dir), filepath.FromSlash(name)))
}

// TestCheckNamesMissing: the finding about a distributed checkpoint names the file that is missing, relative to the directory
// that is checked.
func TestCheckNamesMissing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "job", "step"), os.DirFS("../dcp/testdata/distcp/one")))
	require.NoError(t, os.Remove(filepath.Join(dir, "job", "step", "__0_0.distcp")))
	for _, fsys := range []fs.FS{os.DirFS(dir), systemFS(dir)} {
		for root, in := range map[string]string{".": "job/step", "job": "step"} {
			found, err := checkpoint.Check(fsys, root)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, []string{in + "/__0_0.distcp"}, found[0].Files)
			require.Equal(t, `missing: "`+in+`/__0_0.distcp" is missing, and "`+in+`" cannot be opened without it`, found[0].String())
		}
	}
}

// TestCheckNamesFile: the finding about a directory that cannot be opened names the file that is unreadable, relative to the
// directory that is checked.
func TestCheckNamesFile(t *testing.T) {
	const one, two = "shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"
	fsys := files(map[string]string{"job/step/" + one: weights(t, map[string]float32{"a": 1}), "job/step/" + two: "x"})
	for dir, in := range map[string]string{".": "job/step/", "job": "step/", "job/step": ""} {
		found, err := checkpoint.Check(fsys, dir)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, checkpoint.Unreadable, found[0].Rule)
		require.Equal(t, []string{in + two}, found[0].Files)
		require.Contains(t, found[0].Text, `"`+in+two+`" cannot be opened: `)
	}
}
