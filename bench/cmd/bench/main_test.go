package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReport has a peer that takes three times as long, and one that does not
// differ significantly.
func TestReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "results.txt")
	f, err := os.Create(name)
	require.NoError(t, err)
	fmt.Fprintln(f, "machine: abacus\ndate: 2026-01-02\ncommand: first half")
	for i := range 6 {
		fmt.Fprintf(f, "BenchmarkParse/small/impl=ours 10 %d ns/op 500 MB/s 1000 peak-B\n", 100+i)
		fmt.Fprintf(f, "BenchmarkParse/small/impl=rust 10 %d ns/op 170 MB/s 2000 peak-B\n", 300+i)
		fmt.Fprintf(f, "BenchmarkParse/small/impl=twin 10 %d ns/op 500 MB/s\n", 105-i)
	}
	fmt.Fprintln(f, "date: 2026-01-03\ncommand: second half\nBenchmarkLoad/warm/impl=ours 1 100 ns/op")
	require.NoError(t, f.Close())
	require.NoError(t, writeReport(name, "../.."))

	text, err := os.ReadFile(filepath.Join(filepath.Dir(name), "RESULTS.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), " on abacus")
	require.Contains(t, string(text), "\n    first half # 2026-01-02\n    second half # 2026-01-03\n")
	require.Contains(t, string(text), "  - Freeing a table of tensors is part of its time.")
	require.Contains(t, string(text), "BenchmarkParse starts from a mapped file")
	require.Contains(t, string(text), "| small | 102.5n", "%s", text)
	require.Contains(t, string(text), "**3.0×** | 102.5ns ± 2%, ~ |")
	require.Contains(t, string(text), "| small | 1.000kB ± 0% | 2.000kB ± 0%, **2.0×** | – |")
	require.FileExists(t, filepath.Join(filepath.Dir(name), "charts", "parse.svg"))
}
