package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestProgressOfQuantize: all bytes that cp --quantize reads are announced, although it reads a weight once for
// each of the results that are computed from it.
func TestProgressOfQuantize(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteFile("model.safetensors", map[string]safetensors.Tensor{
		"norm.weight": counting(t, 512), "mlp.weight": counting(t, 128, 512), "bias": counting(t, 3),
	}, nil))
	const others, weight = (512 + 3) * 4, 128 * 512 * 4
	for scheme, passes := range map[string]int64{"fp8-block": 2, "fp8-channel": 2, "nvfp4": 3, "mxfp4": 2, "int4": 2, "int8": 2} {
		s := seams{progressed: func(_ string, total, read int64) {
			require.Equal(t, others+passes*weight, total, scheme)
			require.Equal(t, total, read, scheme)
		}}
		var out, errs bytes.Buffer
		require.Zero(t, s.run([]string{"cp", "model.safetensors", "out-" + scheme, "--quantize", scheme}, new(bytes.Reader), &out, &errs), errs.String())
	}
}

// TestProgress compares the numbers of bytes that all verbs announce as the total of their work with testdata/progress.golden, and
// whether they have read as many in the end. They read fewer or more where a copy leaves out headers, or reads them too.
func TestProgress(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are mapped cannot be replaced there")
	}
	golden := must(os.Getwd()) + "/testdata/progress.golden"
	writeReadings(t)
	var got strings.Builder
	for _, r := range readings() {
		switch filepath.Ext(r.src) {
		case ".pt", ".npz", ".npy", ".bt":
			continue
		}
		if r.src == "distcp" || r.src == "mesh" { // as the files above, a source of the long tests only
			continue
		}
		renew(t)
		fmt.Fprintf(&got, "%s\n", r.line)
		s := seams{progressed: func(title string, total, read int64) {
			what := map[bool]string{true: "read", false: "announced"}[read == total]
			fmt.Fprintf(&got, "  %s: %d bytes %s\n", title, total, what)
		}}
		var out, errs bytes.Buffer
		require.Zero(t, s.run(strings.Fields(r.line), new(bytes.Reader), &out, &errs), "%s: %s", r.line, errs.String())
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o666))
	}
	require.Equal(t, string(must(os.ReadFile(golden))), got.String())
}
