package torch

import (
	"bytes"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// openFile opens a file that generate.py has made, with the key that belongs to it.
func openFile(t *testing.T, name string) (*held, error) {
	data := must(os.ReadFile(name))
	key, err := os.ReadFile(strings.TrimSuffix(name, ".pt") + ".key")
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return openBytes(data, string(key))
}

// requireFolder compares each file of a directory with the safetensors file next to it.
func requireFolder(t *testing.T, folder string) {
	names := must(filepath.Glob(filepath.Join(folder, "*.pt")))
	require.Len(t, names, 36)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			c := must(openFile(t, name))
			requireSame(t, strings.TrimSuffix(name, ".pt")+".safetensors", c.tensors, c.metadata)
			refused, err := os.ReadFile(strings.TrimSuffix(name, ".pt") + ".refused")
			if err != nil {
				require.ErrorIs(t, err, os.ErrNotExist)
			}
			require.Equal(t, string(refused), strings.Join(slices.Sorted(maps.Keys(c.refused)), "\n"))
		})
	}
}

// TestGolden reads files that PyTorch wrote, and compares every tensor.
func TestGolden(t *testing.T) { requireFolder(t, "testdata") }

// TestTorch compares files that the installed PyTorch writes. They hold other numbers than the
// golden files.
func TestTorch(t *testing.T) {
	for _, seed := range []string{"1", "2"} {
		folder := t.TempDir()
		cmd := exec.Command(testplatform.Torch(t), "-B", filepath.Join("testdata", "generate.py"), folder, seed) // -B keeps Python from writing __pycache__
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		requireFolder(t, folder)
	}
}

// TestRefused: entries that are not tensors, and files without tensors, are refused. Nothing in
// them is executed.
func TestRefused(t *testing.T) {
	for name, want := range map[string]string{
		"system":      `evil: it is an object of "posix.system"`,
		"eval":        `evil: it is an object of "__builtin__.eval"`,
		"getattr":     `evil: it is an object of "__builtin__.getattr"`,
		"model":       `it holds an object of "torch.nn.modules.activation.ReLU", not tensors; save the state dict alone (torch.save(model.state_dict(), …))`,
		"numbers":     `no tensors at the top level; no dict in it holds tensors`,
		"storage":     `no tensors at the top level; no dict in it holds tensors`,
		"complex128":  `w: safetensors has no dtype for torch.complex128`,
		"complex32":   `w: safetensors has no dtype for torch.complex32`,
		"quantized":   `w: it is a quantized tensor; dequantize it before saving`,
		"sparse":      `w: it is a sparse tensor; call to_dense before saving`,
		"meta":        `w: it is a tensor on the meta device, which has no data`,
		"conj":        `w: torch._utils._rebuild_tensor_v2: the tensor has the bit "conj", which changes its elements; call resolve_conj and resolve_neg before saving it`,
		"neg":         `w: torch._utils._rebuild_tensor_v2: the tensor has the bit "neg", which changes its elements`,
		"attribute":   `w: it is a tensor of a subclass or with attributes`,
		"bomb":        `tensor "w": F32 [1048576,1048576] is too large for this file: its tensors repeat the same data too often`,
		"key_missing": `no tensors at the top level; a key selects one of "model.state_dict" (7 tensors), "model.ema.0" (1 tensor), "optimizer.state" (1 tensor)`,
		"torchscript": `a TorchScript archive, which is a program; load it with torch.jit.load and save its state_dict`,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := openFile(t, filepath.Join("testdata", "refused", name+".pt"))
			if err != nil {
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, "safetensors: ")
				return
			}
			require.Len(t, c.refused, 1)
			for entry, why := range c.refused {
				require.Contains(t, entry+": "+why.Error(), want)
			}
		})
	}
	require.NoFileExists(t, "executed")
	require.Len(t, must(filepath.Glob("testdata/refused/*")), 17)
}

// TestKeys: the error for a key that selects nothing lists the keys that select something.
func TestKeys(t *testing.T) {
	data := must(os.ReadFile("testdata/foreign2.pt"))
	for key, want := range map[string]string{
		"model.state_dict.0":     `there is no "model.state_dict.0"; a key selects one of "before" (7 tensors), "state_dict" (2 tensors), "optimizer.state" (6 tensors)`,
		"nothing":                `there is no "nothing"`,
		"epoch":                  `"epoch" is an int without tensors; a key selects`,
		"args":                   `"args" is an object of "argparse.Namespace" without tensors`,
		"optimizer.param_groups": `"optimizer.param_groups" is a list of 1 without tensors`,
		".":                      `there is no "."`,
	} {
		require.ErrorContains(t, errorOf(openBytes(data, key)), want, key)
	}
	keys := must(Keys(bytes.NewReader(data), int64(len(data))))
	require.Equal(t, []string{"before", "before.defaults", "before.config.b", "before.config.b.0", "state_dict", "optimizer.state", "optimizer.state.0", "optimizer.state.1"}, keys)
	for _, key := range keys {
		must(openBytes(data, key))
	}
	require.Error(t, errorOf(Keys(bytes.NewReader(data[:100]), 100)))
}

// TestTied: Tie recognizes tensors that share a storage in PyTorch.
func TestTied(t *testing.T) {
	c := must(openFile(t, "testdata/views_float32.pt"))
	kept, noted := safetensors.Tie(c.tensors, c.metadata)
	require.Len(t, kept, len(c.tensors)-1)
	require.Equal(t, map[string]string{"shared_too": "shared"}, noted)
}

// TestReservedName: a tensor whose name is reserved in safetensors is skipped.
func TestReservedName(t *testing.T) {
	c := must(openBytes(zipOf(t, "\x80\x02}("+str("__metadata__")+whole4+str("w")+whole4+"u."), ""))
	require.Len(t, c.tensors, 1)
	require.EqualError(t, c.refused["__metadata__"], "this name is reserved for the metadata of safetensors")
}

// TestOtherFiles: files that torch.save has not made are recognized, some of them by members other
// than the pickle and the storages.
func TestOtherFiles(t *testing.T) {
	tar := make([]byte, 1024)
	copy(tar[257:], "ustar")
	with := func(member, content string) []byte { return zipOf(t, dictOf(whole4), [2]string{member, content}) }
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":        {nil, `the file is empty`},
		"short":        {[]byte("abc"), `not made by torch.save: it starts with "abc"`},
		"tar":          {tar, "a tar archive, as PyTorch wrote before 0.2"},
		"pickle":       {[]byte("\x80\x02}."), "a Python pickle that torch.save did not make; its first object is a dict with 0 entries"},
		"zip":          {[]byte("PK\x05\x06" + strings.Repeat("\x00", 18)), "a zip archive without data.pkl"},
		"no zip":       {[]byte("PK\x03\x04..."), "the zip archive ends before its directory"},
		"magic, alone": {[]byte("\x80\x02\x8a\x0a" + string(legacyMagic) + "."), "unexpected EOF"},

		"long byte order": {with("a/byteorder", strings.Repeat("x", 1<<10)), `unknown byte order "xxx`},
		"too long":        {with("a/byteorder", strings.Repeat("x", 1<<10+1)), `"a/byteorder" has 1025 bytes, more than 1024`},
		"other members":   {zipOf(t, dictOf(whole4), [2]string{"a/@", ""}, [2]string{"a/`", ""}, [2]string{"a/[", ""}, [2]string{"a/{", ""}), ""},
		"byte order":      {with("a/byteorder", "middle"), `unknown byte order "middle"`},
		"two pickles":     {with("b/data.pkl", ""), `a zip archive with two pickles, "a/data.pkl" and "b/data.pkl"`},
		"TorchScript":     {with("a/constants.pkl", ""), "a TorchScript archive"},
		"other pickle":    {with("a/b/data.pkl", ""), ""},
		"other constants": {with("b/constants.pkl", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := openBytes(test.data, "")
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// requireNames opens a file with this pickle. If want starts with "= ", the names of tensors
// follow; otherwise want is the text of the error.
func requireNames(t *testing.T, pickle, want string) {
	t.Helper()
	data := zipOf(t, "\x80\x02"+pickle+".")
	f, err := NewFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		require.ErrorContains(t, err, want)
		return
	}
	require.Equal(t, want, "= "+strings.Join(slices.Sorted(maps.Keys(maps.Collect(f.Tensors()))), " "))
}

// A held is the content of a file, with the entries for which Skip was called.
type held struct {
	tensors  map[string]safetensors.Tensor
	metadata map[string]string
	refused  map[string]error
}

// openBytes is like openAll, for a file in memory.
func openBytes(data []byte, key string) (*held, error) {
	return openAll(bytes.NewReader(data), int64(len(data)), key)
}

// openAll opens a file, and leaves out the entries that safetensors cannot hold.
func openAll(r io.ReaderAt, size int64, key string) (*held, error) {
	refused := make(map[string]error)
	f, err := Opener{Key: key, Skip: func(name string, why error) { refused[name] = why }}.NewFile(r, size)
	if err != nil {
		return nil, err
	}
	return &held{maps.Collect(f.Tensors()), f.Metadata(), refused}, nil
}

// requireSame compares tensors and metadata with those of a safetensors file: names,
// dtypes, shapes and bytes.
func requireSame(t *testing.T, file string, tensors map[string]safetensors.Tensor, metadata map[string]string) {
	t.Helper()
	want := must(safetensors.Load(file))
	var a, b bytes.Buffer
	require.NoError(t, safetensors.Write(&a, maps.Collect(want.Tensors()), want.Metadata()))
	require.NoError(t, safetensors.Write(&b, tensors, metadata))
	require.Equal(t, want.Header(), must(safetensors.ReadHeader(bytes.NewReader(b.Bytes()))))
	require.True(t, bytes.Equal(a.Bytes(), b.Bytes()))
}
