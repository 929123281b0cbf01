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
	"path"
	"regexp"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// maxIndex exceeds the limit of safetensors.OpenShards, whose error tells it.
const maxIndex = 64<<20 + 1

// OpenRepo opens the model in a repository of a hub, "owner/name", at a branch,
// tag or commit; an empty revision is "main". The model is model.safetensors, or
// else the shards of model.safetensors.index.json, which are opened concurrently
// from the commit that the index came from. OpenRepo reads headers only. ctx
// governs the File too, not only OpenRepo.
//
// Errors are those of Open and safetensors.OpenShards. If the repository has
// neither file, the error says so and wraps fs.ErrNotExist. The Hugging Face Hub
// answers 401 to hide whether a repository exists, so the error for one that does
// not may wrap fs.ErrPermission.
func (c *Client) OpenRepo(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	f, err := c.openRepo(ctx, repo, revision)
	return f, prefixed(err)
}

func (c *Client) openRepo(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	r, err := c.session(ctx).repository(repo, revision)
	if err != nil {
		return nil, err
	}
	f, err := r.openFile(r.url(osfile.ModelFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	x, err := r.download(r.url(osfile.IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("no %s and no %s: %w", osfile.ModelFile, osfile.IndexFile, errors.Unwrap(err))
		return nil, &fs.PathError{Op: "open", Path: r.String(), Err: err}
	}
	if err != nil {
		return nil, err
	}
	return r.openShards(x, osfile.IndexFile)
}

// OpenRepoFile opens one file of a repository, such as an adapter or a component
// of a pipeline. name is a clean, slash-separated path. If it ends in .index.json,
// OpenRepoFile opens the shards that the index names, next to it. All else is as
// for OpenRepo.
func (c *Client) OpenRepoFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	f, err := c.openRepoFile(ctx, repo, revision, name)
	return f, prefixed(err)
}

func (c *Client) openRepoFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	r, err := c.session(ctx).repository(repo, revision)
	if err != nil {
		return nil, err
	}
	if !fs.ValidPath(name) || name == "." {
		return nil, fmt.Errorf("%q does not name a file in a repository", name)
	}
	if !strings.HasSuffix(name, osfile.IndexSuffix) {
		return r.openFile(r.url(name))
	}
	x, err := r.download(r.url(name))
	if err != nil {
		return nil, err
	}
	return r.openShards(x, name)
}

// A repository is one of the hub, at a branch, tag or commit.
type repository struct {
	*session
	name, revision string
}

func (s *session) repository(name, revision string) (*repository, error) {
	if s.hubErr != nil {
		return nil, s.hubErr
	}
	revision, err := checkRepo(name, revision)
	return &repository{s, name, revision}, err
}

// checkRepo checks that a path made of a repository and a revision stays where
// it should. It returns the revision, "main" if that is empty.
func checkRepo(repo, revision string) (string, error) {
	if revision == "" {
		revision = "main"
	}
	for _, name := range []string{repo, revision} {
		if !fs.ValidPath(name) || name == "." {
			return "", fmt.Errorf("%q at revision %q does not name a repository", repo, revision)
		}
	}
	return revision, nil
}

// url returns the URL of a file.
func (r *repository) url(file string) *url.URL {
	return r.hub.url.JoinPath(escapePath(r.name), "resolve", url.PathEscape(r.revision), escapePath(file))
}

func (r *repository) String() string {
	return redact(r.hub.url.JoinPath(escapePath(r.name))) + " at " + r.revision
}

// escapePath escapes each element of a path.
func escapePath(path string) string {
	elements := strings.Split(path, "/")
	for i, e := range elements {
		elements[i] = url.PathEscape(e)
	}
	return strings.Join(elements, "/")
}

// commitName is the name of a Git commit, SHA-1 or SHA-256.
var commitName = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// openShards opens the shards of the index called name, next to it. If the hub
// names the commit of the index, they are from the same.
func (r *repository) openShards(x *index, name string) (*safetensors.File, error) {
	from := *r
	if commitName.MatchString(x.at.commit) {
		from.revision = x.at.commit
	}
	return r.session.openShards(x, func(shard string) *url.URL {
		return from.url(path.Join(path.Dir(name), shard))
	})
}

// An index is a downloaded index of shards.
type index struct {
	url  *url.URL
	text []byte
	at   place
}

// openShards opens the shards of an index.
func (s *session) openShards(x *index, shardURL func(shard string) *url.URL) (*safetensors.File, error) {
	f, err := safetensors.OpenShards(bytes.NewReader(x.text), func(shard string) (*safetensors.File, error) {
		return s.openFile(shardURL(shard))
	})
	if err != nil {
		return nil, openError(x.url, bare(err))
	}
	return f, nil
}

// download downloads the index at a URL.
func (s *session) download(u *url.URL) (*index, error) {
	x := &index{url: u}
	err := s.retry(func() (int64, error) {
		return 0, s.tryDownload(x) // 0: the next try starts over
	})
	if err != nil {
		return nil, openError(u, getError(x.at.url, err))
	}
	return x, nil
}

func (s *session) tryDownload(x *index) error {
	e := s.exchange()
	defer e.end()
	resp, at, err := s.get(e.ctx, place{url: x.url, trusted: true}, nil)
	x.at = at
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			x.text, err = io.ReadAll(io.LimitReader(e.body(resp), maxIndex))
		} else {
			err = statusError(resp, http.StatusOK)
		}
	}
	return e.cause(err)
}
