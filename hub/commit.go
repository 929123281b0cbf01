package hub

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/transport"
)

// A pinned is a transport that keeps all requests of one Open to one commit. The first answer names the
// commit that the revision stands for, and later requests ask for files of this commit. So all shards
// belong to the index, and a File continues to read its files after somebody pushes to the branch.
type pinned struct {
	http.RoundTripper
	files    *url.URL               // URL of the files, before the revision and the name of a file
	revision string                 // escaped for URLs
	commit   atomic.Pointer[string] // nil before the first answer
}

// keepToCommit returns a copy of a client. Its requests for files of a revision keep to one commit.
func keepToCommit(client *http.Client, files *url.URL, revision string) *http.Client {
	kept := *cmp.Or(client, new(http.Client))
	sends := cmp.Or(kept.Transport, transport.Default())
	kept.Transport = &pinned{RoundTripper: sends, files: files, revision: url.PathEscape(revision)}
	return &kept
}

// isCommit reports whether a text is the name of a Git commit, which is a SHA-1 or a SHA-256 in
// lower-case hex.
func isCommit(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}

func (p *pinned) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != p.files.Scheme || req.URL.Host != p.files.Host {
		return p.RoundTripper.RoundTrip(req)
	}
	in := p.files.EscapedPath()
	file, ours := strings.CutPrefix(req.URL.EscapedPath(), in+"/"+p.revision+"/")
	if !ours { // a renamed repository redirects to its new name
		in, file, ours = strings.Cut(req.URL.EscapedPath(), "/resolve/"+p.revision+"/")
		in += "/resolve"
	}
	if commit := p.commit.Load(); ours && commit != nil {
		u := (&url.URL{Scheme: p.files.Scheme, Host: p.files.Host, Path: "/"}).JoinPath(in, *commit, file)
		u.User, u.RawQuery = req.URL.User, req.URL.RawQuery
		req = req.Clone(req.Context())
		req.URL = u
	}
	resp, err := p.RoundTripper.RoundTrip(req)
	if err != nil || resp == nil {
		return resp, err
	}
	if commit := resp.Header.Get("X-Repo-Commit"); isCommit(commit) {
		p.commit.CompareAndSwap(nil, &commit)
	}
	return resp, nil
}
