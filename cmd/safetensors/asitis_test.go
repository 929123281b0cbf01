package main

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// odd returns a file whose bytes the command would not write: the tensors, the metadata and the fields
// are in another order, and there are spaces.
func odd() string {
	header := `{"b": {"shape": [2], "dtype": "F32", "data_offsets": [1, 9]}, "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, ` +
		`"__metadata__": {"source": "x", "format": "pt", "author": "y"}}  `
	text := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return string(text) + header + "\x07\x00\x00\x80\x3f\x00\x00\x00\xc0"
}

// TestCopyAsItIs: wherever a single file is copied from and to, the copy has its bytes, unless a flag
// changes it.
func TestCopyAsItIs(t *testing.T) {
	startStore(t, fakeS3())
	for _, name := range []string{"repo/model.safetensors", "repo/adapter/adapter_model.safetensors", "odd.safetensors"} {
		write(t, name, odd())
	}
	h := startFolderHub(t, "repo", true)
	succeeds(t, "cp", "odd.safetensors", "s3://models/from/model.safetensors")
	for _, src := range []string{
		"odd.safetensors", "repo/model.safetensors", "repo", "hf://owner/name/model.safetensors", "hf://owner/name",
		h.files + "/model.safetensors", "s3://models/from/model.safetensors", "s3://models/from",
	} {
		for _, dst := range []string{"x.safetensors", "dir", "dir/", "new/dir/", "s3://models/x.safetensors", "s3://models/dir", "s3://models/dir/"} {
			t.Run(src+" to "+dst, func(t *testing.T) {
				require.NoError(t, os.RemoveAll("dir"))
				require.Equal(t, `{"file":"`+dst+`","total":{"tensors":2,"parameters":3,"bytes":9},"files":[]}`+"\n", succeeds(t, "cp", src, dst, "--json", "--force"))
				from := dst
				if strings.HasSuffix(dst, "/") && strings.HasPrefix(src, "odd") {
					from += "odd.safetensors"
				}
				require.Equal(t, odd(), succeeds(t, "cp", from, "-"))
			})
		}
	}
	require.Contains(t, succeeds(t, "verify", "new/dir/model.safetensors", "--hub", "owner/name"), "model.safetensors: OK\n")
	require.Contains(t, fails(t, 1, "cp", "odd.safetensors", "x.safetensors"), "exists; --force replaces it")
	require.Contains(t, fails(t, 1, "cp", "odd.safetensors", "new/dir/"), "exists; --force replaces it")
	require.Contains(t, fails(t, 1, "cp", "odd.safetensors", "new/dir"), "model.safetensors exists; --force replaces it")
	succeeds(t, "cp", "repo/adapter/adapter_model.safetensors", "adapter")
	require.Equal(t, map[string]string{"adapter_model.safetensors": odd()}, tree(t, "adapter"))

	var out, errs bytes.Buffer
	require.Zero(t, (&seams{}).run([]string{"cp", "-", "new/piped.safetensors"}, strings.NewReader(odd()), &out, &errs), errs.String())
	require.Equal(t, odd(), string(must(os.ReadFile("new/piped.safetensors"))))

	// These flags, and another format, make a new file.
	for _, flags := range [][]string{{"--align", "8"}, {"--only", "*"}, {"--dtype", "bf16"}, {"--meta", "source=x"}, {"--tie"}, {"--max-shard-size", "1GB"}, {"--ranks", "1"}} {
		dst := "flags" + flags[0] + "/"
		if flags[0] == "--ranks" || flags[0] == "--max-shard-size" {
			dst = strings.TrimSuffix(dst, "/")
		}
		succeeds(t, append([]string{"cp", "odd.safetensors", dst}, flags...)...)
		for name, text := range tree(t, dst) {
			require.NotEqual(t, odd(), text, name)
		}
	}
	succeeds(t, "cp", "odd.safetensors", "odd.bt")
	require.NotContains(t, string(must(os.ReadFile("odd.bt"))), odd())
	require.Equal(t, "equal\n", succeeds(t, "diff", "odd.safetensors", "odd.bt", "--meta"))
}

// TestCopyOtherBytes: a single file with other bytes than those that the hub lists is not copied, nor is
// one that breaks a rule.
func TestCopyOtherBytes(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "repo/model.safetensors", odd())
	h := startFolderHub(t, "repo", true)
	h.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		text := []byte(odd())
		text[len(text)-1]++
		w.Header().Set("ETag", `"x"`)
		http.ServeContent(w, r, "model.safetensors", time.Time{}, bytes.NewReader(text))
		return true
	})
	for _, src := range []string{"hf://owner/name", "hf://owner/name/model.safetensors"} {
		for _, dst := range []string{"x.safetensors", "dir", "dir/", "-"} {
			require.Contains(t, fails(t, 1, "cp", src, dst), "it does not have the sum that the hub gives", "%s to %s", src, dst)
		}
	}
	broken := strings.Replace(odd(), `"U8"`, `"U7"`, 1)
	write(t, "broken.safetensors", broken)
	for _, dst := range []string{"x.safetensors", "dir", "dir/", "-"} {
		require.Contains(t, fails(t, 1, "cp", "broken.safetensors", dst), "U7")
	}
	require.Equal(t, []string{"broken.safetensors", "repo"}, list(t, "."))
}
