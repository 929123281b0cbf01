package remote

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// TestVersionStaysPinned has an answer without a version.
func TestVersionStaysPinned(t *testing.T) {
	s := newServer(t)
	client, _ := newClient()
	tensor := openTensor(t, client, s.add("/m", craft(100_100, 3000)))
	s.fault = ignoring("If-Match")
	s.etag = ""
	bytesOf(tensor)
	s.etag = `"v2"`
	require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, tensor)), ErrChanged)
	require.Equal(t, "identity", s.requests[0].Header.Get("Accept-Encoding"))
}

func TestReadsPinTheVersion(t *testing.T) {
	monday := time.Date(2025, 6, 2, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name     string
		etag     string
		modified time.Time
		change   func(s *server)
		header   string // of requests after the first
		value    string
		text     string // of the error; empty: the change goes unnoticed
	}{
		{name: "nothing changes", etag: `"v1"`, header: "If-Match", value: `"v1"`},
		{name: "strong ETag", etag: `"v1"`, change: func(s *server) { s.etag = `"v2"` }, header: "If-Match", value: `"v1"`, text: "status 412 Precondition Failed"},
		{name: "strong ETag on a server without preconditions", etag: `"v1"`, change: func(s *server) {
			s.etag = `"v2"`
			s.fault = ignoring("If-Match")
		}, text: "ETag is `\"v2\"`, was `\"v1\"`"},
		{name: "long ETag", etag: `"` + strings.Repeat("a", 10_000) + `"`, change: func(s *server) {
			s.etag = `W/` + s.etag
			s.fault = ignoring("If-Match")
		}, text: "ETag is"},
		{name: "weak ETag", etag: `W/"v1"`, change: func(s *server) { s.etag = `W/"v2"` }, header: "If-Match", text: "ETag is `W/\"v2\"`, was `W/\"v1\"`"},
		{name: "same weak ETag, other date", etag: `W/"v1"`, modified: monday, change: func(s *server) {
			s.modified = monday.Add(time.Second)
			s.fault = ignoring("If-Unmodified-Since")
		}, text: "Last-Modified is"},
		{name: "same strong ETag, other date", etag: `"v1"`, modified: monday, change: func(s *server) { s.modified = monday.Add(time.Second) }},
		{name: "date", modified: monday, change: func(s *server) { s.modified = monday.Add(time.Second) }, header: "If-Unmodified-Since", value: "Mon, 02 Jun 2025 08:00:00 GMT", text: "status 412"},
		{name: "shorter", change: func(s *server) { s.files["/m"] = craft(100_100, 5) }, text: "it has 100113 bytes, had 103108"},
		{name: "longer", change: func(s *server) { s.files["/m"] = craft(100_100, 5000) }, text: "it has 105108 bytes, had 103108"},
		{name: "turned into a server without ranges", change: func(s *server) { s.fault = ignoring("Range") }, text: "does not support range requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.etag, s.modified = c.etag, c.modified
			client, _ := newClient()
			tensor := openTensor(t, client, s.add("/m", craft(100_100, 3000)))
			if c.change != nil {
				c.change(s)
			}
			_, err := safetensors.Append[byte](nil, tensor)
			last := s.requests[len(s.requests)-1]
			if c.header != "" {
				require.Equal(t, c.value, last.Header.Get(c.header))
			}
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.text)
			require.Less(t, len(err.Error()), 1000)
			if c.text != "does not support range requests" {
				require.ErrorIs(t, err, ErrChanged)
			}
		})
	}
}
