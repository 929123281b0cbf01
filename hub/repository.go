package hub

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A repository is the source of a model's files.
type repository struct {
	location
	dir  string // directory of the repository in the cache if no request may be sent, otherwise ""
	open func(file string) (*safetensors.File, error)
	read func(file string) ([]byte, error)
}

// repository returns a repository on the hub or, offline, in the cache. file is the first file that the caller
// will open; repository only checks its name.
func (c *Client) repository(ctx context.Context, repo, revision, file string) (*repository, error) {
	revision, err := checkRepo(repo, revision)
	if err == nil {
		err = checkName(file)
	}
	if err != nil {
		return nil, err
	}
	r := &repository{location: location{repo: repo, revision: revision}}
	if offline() {
		if r.dir, err = cacheDir(repo, revision, file); err != nil {
			return nil, fmt.Errorf("HF_HUB_OFFLINE is set: %w", err)
		}
		r.open = func(file string) (*safetensors.File, error) { return cached(r, safetensors.Open, file) }
		r.read = func(file string) ([]byte, error) { return cached(r, readSmall, file) }
		return r, nil
	}
	client, endpoint, err := c.connect()
	if err != nil {
		return nil, err
	}
	r.endpoint, r.token = endpoint, client.Header != nil
	files := endpoint.JoinPath(escapePath(repo), "resolve")
	client.HTTP = keepToCommit(c.HTTP, files, revision)
	at := func(file string) string { return files.JoinPath(url.PathEscape(revision), escapePath(file)).String() }
	r.open = func(file string) (*safetensors.File, error) {
		f, err := client.Open(ctx, at(file))
		return f, r.explain(file, err)
	}
	r.read = func(file string) ([]byte, error) {
		data, err := client.ReadFile(ctx, at(file))
		return data, r.explain(file, err)
	}
	return r, nil
}

// cached opens or reads a file of a repository in the cache.
func cached[T any](r *repository, open func(name string) (T, error), file string) (opened T, err error) {
	local, err := filepath.Localize(file)
	if err != nil {
		return opened, fmt.Errorf("%q: %w", file, err)
	}
	opened, err = open(filepath.Join(r.dir, local))
	return opened, r.offlineError(file, err)
}

// offlineError adds the reason why no request was sent to an error of opening a file in the cache,
// or of opening the model if file is "". It returns nil for nil.
func (r *repository) offlineError(file string, err error) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf("%q of %s", file, r.location)
	if file == "" {
		what = fmt.Sprintf("the model of %s", r.location)
	}
	return fmt.Errorf("HF_HUB_OFFLINE is set: %w", inCache(what, r.dir, prefix.Strip(err)))
}

// readSmall reads a file of the cache. It has the same limit as ReadFile online.
func readSmall(name string) ([]byte, error) { return osfile.ReadRegular(name, 64<<20) }
