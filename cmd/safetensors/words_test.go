package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// prepareWords writes the files of the script words: those that people hand to the command although
// something is wrong with them.
func prepareWords(t *testing.T, dir string) []string {
	raw := func(name string, content []byte) {
		file := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
		require.NoError(t, os.WriteFile(file, content, 0o666))
	}
	header := func(name, text string, data int) {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
		raw(name, append(append(b, text...), make([]byte, data)...))
	}
	tensor := func(name, tensor string) {
		var b bytes.Buffer
		require.NoError(t, safetensors.Write(&b, map[string]safetensors.Tensor{tensor: counting(t, 2)}, nil))
		raw(name, b.Bytes())
	}
	header("step.safetensors", `{"__metadata__":{"format":"pt","step":3},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, 8)
	header("json.safetensors", `{"__metadata__":{"config":{"a":1}},"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, 8)
	header("reserved.safetensors", `{"__metadata__":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}`, 8)
	header("absolute.safetensors", `{"w":{"dtype":"U8","shape":[8],"data_offsets":[63,71]}}`, 8)
	tensor("several/one.safetensors", "a")
	tensor("several/two.safetensors", "b")
	for _, i := range []string{"1", "2", "4"} {
		tensor("gap/model-0000"+i+"-of-00004.safetensors", i)
	}
	tensor("beside/model.safetensors", "whole")
	tensor("beside/model-00001-of-00002.safetensors", "1")
	tensor("beside/model-00002-of-00002.safetensors", "2")
	npy := "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
	raw("b.npy", append([]byte("\x93NUMPY\x01\x00"+string(rune(len(npy)))+"\x00"+npy), 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40))
	snapshot := "cache/models--owner--name/snapshots/0123456789abcdef0123456789abcdef01234567/"
	raw(snapshot+"config.json", []byte("{}"))
	raw("cache/models--owner--name/refs/main", []byte("0123456789abcdef0123456789abcdef01234567"))
	return []string{"HF_HUB_OFFLINE=1", "HF_HUB_CACHE=" + filepath.Join(dir, "cache")}
}
