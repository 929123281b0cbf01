package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	"github.com/stretchr/testify/require"
)

// TestWithFilesRequests: a small file is one request for its attributes and one for its
// content, and nothing more is asked about the weights than without --with-files.
func TestWithFilesRequests(t *testing.T) {
	s := startStore(t, gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	writeShards(t, "src")
	text := strings.Repeat("x", 300_000)
	require.NoError(t, os.WriteFile("src/tokenizer.json", []byte(text), 0o666))
	succeeds(t, "cp", "-q", "src", "s3://models/src", "--max-shard-size", "32B", "--with-files")
	count := func(args ...string) map[string]int {
		s.requests()
		succeeds(t, args...)
		requests := make(map[string]int)
		for _, request := range s.requests() {
			requests[request]++
		}
		return requests
	}
	without := count("cp", "-q", "s3://models/src", "without")
	with := count("cp", "-q", "s3://models/src", "with", "--with-files")
	require.Equal(t, text, tree(t, "with")["tokenizer.json"])
	require.Equal(t, 1, with["GET /models/src/tokenizer.json"])
	for request, n := range without {
		if strings.HasSuffix(request, ".safetensors") {
			require.Equal(t, n, with[request], request)
		}
	}
}
