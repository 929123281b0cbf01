package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHashData: the sums are those that hashlib of Python computes from byte 8 + length of the header on. They do not change
// with the metadata, and files without such a header are refused.
func TestHashData(t *testing.T) {
	const golden = "../../testdata/golden/"
	for file, sum := range map[string]string{
		golden + "bf16.safetensors":           "9fcff5fa3a1ec51870e6c5f8348b0cfaf94633f55b4a518f721764da1bcf26e5",
		golden + "c64.safetensors":            "0685d8fd38bee41f12831deef430a4a565bed8c8b4f9863598d0fa3ddd7e9309",
		golden + "empty_metadata.safetensors": "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1",
		"../../testdata/model.safetensors":    "8cb8f2f809285af194a9194f3b3544c3cf819f030d21d80c916ab6412ac4e0b3",
	} {
		require.Equal(t, sum, strings.Fields(succeeds(t, "hash", "--data", file))[0], file)
		copied := t.TempDir() + "/x.safetensors"
		succeeds(t, "cp", file, copied)
		if runtime.GOOS != "windows" { // where a file that is mapped cannot be replaced
			succeeds(t, "meta", copied, "longer="+strings.Repeat("x", 1000), "--in-place")
		}
		require.Equal(t, sum+"  x.safetensors\n", succeeds(t, "hash", "--data", copied))
		require.Contains(t, succeeds(t, "hash", "--data", "--json", copied), `"data":[{"name":"x.safetensors","sha256":"`+sum+`"}]`)
	}
	require.Contains(t, fails(t, 2, "hash", "--data", "--tensors", golden+"bf16.safetensors"), "--data cannot be combined with")
	npz := t.TempDir() + "/x.npz"
	succeeds(t, "cp", golden+"c64.safetensors", npz)
	require.Contains(t, fails(t, 1, "hash", "--data", npz), "not a safetensors file")

	const ranks = "../../dcp/testdata/mesh/"
	const rank = "shard-00001-model-00001-of-00001.safetensors"
	require.Contains(t, succeeds(t, "hash", "--data", ranks), strings.Fields(succeeds(t, "hash", "--data", ranks+rank))[0]+"  "+rank+"\n")
	require.Contains(t, fails(t, 1, "hash", "--data", "../../dcp/testdata/distcp/mesh"), "not a safetensors file")
}
