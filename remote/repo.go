package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// maxIndex is above what safetensors.OpenShards accepts, which says so.
const maxIndex = 64<<20 + 1

// OpenRepo opens the model in a repository of a hub, "owner/name", at a branch,
// tag or commit, "main" if that is empty: its model.safetensors or else the
// shards of its model.safetensors.index.json. It reads headers only, those of
// shards side by side. ctx ends all that the File does, not only OpenRepo.
//
// Errors are those of Open and of safetensors.OpenShards. If the repository has
// neither file, the error is fs.ErrNotExist. The Hugging Face Hub says of a
// repository that does not exist, too, that it is not permitted.
func (c *Client) OpenRepo(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	f, err := c.openRepo(ctx, repo, revision)
	return f, prefixed(err)
}

func (c *Client) openRepo(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	if revision == "" {
		revision = "main"
	}
	single, err := s.hub.file(repo, revision, osfile.ModelFile)
	if err != nil {
		return nil, err
	}
	f, absent := s.openFile(single)
	if !errors.Is(absent, fs.ErrNotExist) {
		return f, absent
	}
	index, err := s.hub.file(repo, revision, osfile.IndexFile)
	if err != nil {
		return nil, err
	}
	f, err = s.openIndex(index, func(shard, commit string) (*url.URL, error) {
		if !commitName.MatchString(commit) { // a hub that does not name it
			commit = revision
		}
		return s.hub.file(repo, commit, shard)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(absent, err)
	}
	return f, err
}

// openIndex opens the shards of an index. shardURL is told the commit that the
// index is from, if the hub names it, so that all files are from the same.
func (s *session) openIndex(u *url.URL, shardURL func(shard, commit string) (*url.URL, error)) (*safetensors.File, error) {
	index, at, err := s.download(u)
	if err != nil {
		return nil, openError(u, err)
	}
	f, err := safetensors.OpenShards(bytes.NewReader(index), func(shard string) (*safetensors.File, error) {
		u, err := shardURL(shard, at.commit)
		if err != nil {
			return nil, err
		}
		return s.openFile(u)
	})
	if err != nil {
		return nil, openError(u, bare(err))
	}
	return f, nil
}

// download returns a whole file, an index.
func (s *session) download(u *url.URL) (data []byte, at place, err error) {
	err = s.retry(func() (int64, error) {
		x := s.exchange()
		defer x.end()
		var resp *http.Response
		resp, at, err = s.get(x.ctx, place{url: u, trusted: true}, nil)
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				data, err = io.ReadAll(io.LimitReader(x.body(resp), maxIndex))
			} else {
				err = statusError(resp, http.StatusOK)
			}
		}
		return 0, x.cause(err) // the next try begins anew
	})
	if err != nil {
		err = getError(at.url, err)
	}
	return data, at, err
}

// commitName is the name of a Git commit, be it SHA-1 or SHA-256.
var commitName = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// file returns the URL of a file in a repository.
func (h hub) file(repo, revision, name string) (*url.URL, error) {
	for _, path := range []string{repo, revision} {
		if !fs.ValidPath(path) || path == "." {
			return nil, fmt.Errorf("%q at revision %q does not name a repository", repo, revision)
		}
	}
	return parseURL(strings.TrimRight(h.url.String(), "/") +
		"/" + escapePath(repo) + "/resolve/" + url.PathEscape(revision) + "/" + escapePath(name))
}

// escapePath escapes each element of a path.
func escapePath(path string) string {
	elements := strings.Split(path, "/")
	for i, e := range elements {
		elements[i] = url.PathEscape(e)
	}
	return strings.Join(elements, "/")
}
