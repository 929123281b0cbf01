package hub

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/transport"
)

// A pinned transport keeps the requests of one Open to one commit: once the hub has
// said which one the revision stands for, it asks for the files of that. So all shards
// are those of the index, and a File that outlives a push still reads its own.
type pinned struct {
	http.RoundTripper
	files    *url.URL // which the revision, a slash and the name of a file follow
	revision string   // as in a URL
	commit   atomic.Pointer[string]
}

// keepToCommit returns a copy of a client whose requests for files of a revision keep
// to one commit.
func keepToCommit(client *http.Client, files *url.URL, revision string) *http.Client {
	kept := *cmp.Or(client, new(http.Client))
	sends := cmp.Or(kept.Transport, transport.Default())
	kept.Transport = &pinned{RoundTripper: sends, files: files, revision: url.PathEscape(revision)}
	return &kept
}

// commitName is the name of a Git commit, SHA-1 or SHA-256.
var commitName = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

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
	if commit := resp.Header.Get("X-Repo-Commit"); commitName.MatchString(commit) {
		p.commit.CompareAndSwap(nil, &commit)
	}
	return resp, nil
}
