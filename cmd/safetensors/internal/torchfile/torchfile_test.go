package torchfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/exchange"
	"github.com/stretchr/testify/require"
)

// openFile opens a file of a folder of generate.py, with its key.
func openFile(t *testing.T, name string) (map[string]safetensors.Tensor, map[string]string, error) {
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	key, err := os.ReadFile(strings.TrimSuffix(name, ".pt") + ".key")
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return Open(bytes.NewReader(data), int64(len(data)), string(key))
}

// requireFolder compares each file of a folder with the safetensors file next to it.
func requireFolder(t *testing.T, folder string) {
	names, err := filepath.Glob(filepath.Join(folder, "*.pt"))
	require.NoError(t, err)
	require.Len(t, names, 18)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			tensors, metadata, err := openFile(t, name)
			require.NoError(t, err)
			exchange.RequireSame(t, strings.TrimSuffix(name, ".pt")+".safetensors", tensors, metadata)
		})
	}
}

func TestGolden(t *testing.T) { requireFolder(t, "testdata") }

// TestTorch compares files that the installed PyTorch writes, of other numbers than
// the golden ones.
func TestTorch(t *testing.T) {
	for _, seed := range []string{"1", "2"} {
		folder := t.TempDir()
		exchange.Run(t, "SAFETENSORS_TORCH", "torch,safetensors", filepath.Join("testdata", "generate.py"), folder, seed)
		requireFolder(t, folder)
	}
}

func TestRefused(t *testing.T) {
	for name, want := range map[string]string{
		"system":       `it asks for "posix.system", which is refused: tensors need no code; save the state dict alone (torch.save(model.state_dict(), …))`,
		"eval":         `it asks for "__builtin__.eval", which is refused`,
		"getattr":      `it asks for "__builtin__.getattr", which is refused`,
		"model":        `it asks for "torch.nn.modules.activation.ReLU", which is refused`,
		"tensor":       `it holds a tensor, not a dict of tensors`,
		"list":         `it holds a list of 1, not a dict of tensors`,
		"numbers":      `no tensors at the top level; no dict in it holds tensors`,
		"beside":       `entry "config" is a dict with 1 entries, not a tensor`,
		"storage":      `no tensors at the top level; no dict in it holds tensors`,
		"integer_keys": `a key of the dict is an int, not a string`,
		"complex128":   `tensor "w": safetensors has no dtype for torch.complex128`,
		"complex32":    `tensor "w": safetensors has no dtype for torch.complex32`,
		"quantized":    `torch._utils._rebuild_qtensor: quantized tensors are not supported; dequantize them`,
		"sparse":       `torch._utils._rebuild_sparse_tensor: sparse tensors are not supported; call to_dense`,
		"meta":         `torch._utils._rebuild_meta_tensor_no_storage: tensors on the meta device have no data`,
		"conj":         `the tensor has the bit "conj", which changes its elements; call resolve_conj and resolve_neg before saving it`,
		"neg":          `the tensor has the bit "neg", which changes its elements`,
		"attribute":    `torch._tensor._rebuild_from_type_v2: tensor subclasses and tensors with attributes are not supported`,
		"bomb":         `tensor "w": F32 [1048576,1048576] is too large for this file: its tensors repeat the same data too often`,
		"key_missing":  `no tensors at the top level; keys of dicts with tensors: "model.state_dict" (7 tensors), "model.ema.0" (1 tensors)`,
		"torchscript":  `a TorchScript archive, which is a program; load it with torch.jit.load and save its state_dict`,
	} {
		t.Run(name, func(t *testing.T) {
			tensors, metadata, err := openFile(t, filepath.Join("testdata", "refused", name+".pt"))
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "torch file: ")
			require.Nil(t, tensors)
			require.Nil(t, metadata)
		})
	}
	require.NoFileExists(t, "executed")
	names, err := filepath.Glob("testdata/refused/*")
	require.NoError(t, err)
	require.Len(t, names, 21)
}

// TestKeys: a key that fits nothing lists those that do.
func TestKeys(t *testing.T) {
	data, err := os.ReadFile("testdata/checkpoint.pt")
	require.NoError(t, err)
	for key, want := range map[string]string{
		"model":                   `no tensors in "model" itself; keys of dicts with tensors: "model.state_dict" (7 tensors)`,
		"model.state_dict.0":      `there is no dict "model.state_dict.0"; keys of dicts with tensors: "model.state_dict" (7 tensors)`,
		"model.state_dict.0.bias": `there is no dict "model.state_dict.0.bias"`,
		"nothing":                 `there is no dict "nothing"`,
		"epoch":                   `there is no dict "epoch"`,
		"optimizer":               `no tensors in "optimizer" itself`,
		".":                       `there is no dict "."`,
	} {
		_, _, err := Open(bytes.NewReader(data), int64(len(data)), key)
		require.ErrorContains(t, err, want, key)
	}
}

// TestTied: tensors that PyTorch saves as one are one for Tie.
func TestTied(t *testing.T) {
	tensors, metadata, err := openFile(t, "testdata/views_float32.pt")
	require.NoError(t, err)
	kept, noted := safetensors.Tie(tensors, metadata)
	require.Len(t, kept, len(tensors)-1)
	require.Equal(t, map[string]string{"shared_too": "shared"}, noted)
}

// TestOtherFiles: what is no file of torch.save is recognized.
func TestOtherFiles(t *testing.T) {
	tar := make([]byte, 1024)
	copy(tar[257:], "ustar")
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"empty":        {nil, `not made by torch.save: it starts with ""`},
		"short":        {[]byte("abc"), `not made by torch.save: it starts with "abc"`},
		"tar":          {tar, "a tar archive, as PyTorch wrote before 0.2"},
		"pickle":       {[]byte("\x80\x02}."), "a Python pickle that torch.save did not make; its first object is a dict with 0 entries"},
		"zip":          {[]byte("PK\x05\x06" + strings.Repeat("\x00", 18)), "a zip archive without data.pkl"},
		"no zip":       {[]byte("PK\x03\x04..."), "reading the zip directory: zip: not a valid zip file"},
		"magic, alone": {[]byte("\x80\x02\x8a\x0a" + string(legacyMagic) + "."), "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Open(bytes.NewReader(test.data), int64(len(test.data)), "")
			require.ErrorContains(t, err, test.want)
		})
	}
}
