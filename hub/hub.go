package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/remote"
)

// A Client opens files of repositories. The zero value is ready to use. Methods may
// be called concurrently; fields must not change meanwhile.
type Client struct {
	// HTTP sends the requests, as in a remote.Client. It is not modified.
	HTTP *http.Client

	// Endpoint is the base URL of the hub. The default is the environment
	// variable HF_ENDPOINT, else https://huggingface.co.
	Endpoint string

	// Token authorizes the requests to Endpoint, and is sent nowhere else. The
	// default is HF_TOKEN, else the content of the file HF_TOKEN_PATH, which
	// defaults to token in HF_HOME, which defaults to ~/.cache/huggingface. There is
	// no default if HF_HUB_DISABLE_IMPLICIT_TOKEN is 1.
	Token string
}

// The names of a model's files in a repository.
const (
	modelFile = "model.safetensors"
	indexFile = modelFile + ".index.json" // which names the shards of a model in several
)

// Open opens a model on the hub, with the zero Client.
func Open(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	return new(Client).Open(ctx, repo, revision)
}

// OpenFile opens a file of a repository on the hub, with the zero Client.
func OpenFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	return new(Client).OpenFile(ctx, repo, revision, name)
}

// Open opens the model in a repository of the hub, "owner/name", at a branch, tag or
// commit; an empty revision is "main". The model is model.safetensors, or else the
// shards of model.safetensors.index.json, which are opened concurrently. Open reads
// headers only. ctx governs the File too, not only Open.
//
// If HF_HUB_OFFLINE is 1, Open sends nothing: it maps the files in the cache, as
// [safetensors.Open] does.
//
// Errors are those of [remote.Open] and [safetensors.OpenShards]. If the repository has
// neither file, the error says so and wraps [fs.ErrNotExist]. The Hugging Face Hub
// answers 401 to hide whether a repository exists, so the error for a missing one may
// wrap [fs.ErrPermission].
func (c *Client) Open(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	r, err := c.repository(ctx, repo, revision, modelFile)
	if err != nil {
		return nil, prefix.Add(err)
	}
	f, err := r.open(modelFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return prefix.Added(f, err)
	}
	f, err = r.open(indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = &fs.PathError{Op: "open", Path: r.name, Err: fmt.Errorf("it has no %s, and %w", modelFile, prefix.Strip(err))}
	}
	return prefix.Added(f, err)
}

// OpenFile opens one file of a repository, such as an adapter or a component of a
// pipeline. name is a valid path in the sense of [fs.ValidPath]. If it ends in
// .index.json, or as the index of a variant, .safetensors.index.fp16.json, OpenFile opens
// the shards that the index names, next to it. All else is
// as for Open.
func (c *Client) OpenFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	r, err := c.repository(ctx, repo, revision, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(r.open(name))
}

// checkName checks that a name stays in its repository.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%.200q does not name a file in a repository", name)
	}
	return nil
}

// A repository is where the files of a model are.
type repository struct {
	name string // for errors
	open func(file string) (*safetensors.File, error)
	read func(file string) ([]byte, error)
}

// repository returns a repository on the hub or, offline, in the cache. A file of that name
// will be asked for.
func (c *Client) repository(ctx context.Context, repo, revision, file string) (*repository, error) {
	revision, err := checkRepo(repo, revision)
	if err == nil {
		err = checkName(file)
	}
	if err != nil {
		return nil, err
	}
	r := &repository{name: fmt.Sprintf("%s at revision %s", repo, revision)}
	if offline() {
		dir, err := cacheDir(repo, revision)
		if err != nil {
			return nil, fmt.Errorf("HF_HUB_OFFLINE is set: %w", err)
		}
		r.open = func(file string) (*safetensors.File, error) { return cached(safetensors.Open, dir, file) }
		r.read = func(file string) ([]byte, error) { return cached(readSmall, dir, file) }
		return r, nil
	}
	client, endpoint, err := c.connect()
	if err != nil {
		return nil, err
	}
	files := endpoint.JoinPath(escapePath(repo), "resolve")
	client.HTTP = keepToCommit(c.HTTP, files, revision)
	at := func(file string) string { return files.JoinPath(url.PathEscape(revision), escapePath(file)).String() }
	r.open = func(file string) (*safetensors.File, error) { return client.Open(ctx, at(file)) }
	r.read = func(file string) ([]byte, error) { return client.ReadFile(ctx, at(file)) }
	return r, nil
}

// connect returns the base URL of the hub, and a client for requests to it.
func (c *Client) connect() (client *remote.Client, endpoint *url.URL, err error) {
	client = &remote.Client{HTTP: c.HTTP}
	if token := cleanToken(c.Token); token != "" {
		client.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	endpoint, err = parseEndpoint(c.Endpoint)
	return client, endpoint, err
}

// cached opens or reads a file of a snapshot in the cache.
func cached[T any](open func(name string) (T, error), dir, file string) (opened T, err error) {
	local, err := filepath.Localize(file)
	if err != nil {
		return opened, fmt.Errorf("%q: %w", file, err)
	}
	if opened, err = open(filepath.Join(dir, local)); err != nil {
		err = fmt.Errorf("HF_HUB_OFFLINE is set: %w", prefix.Strip(err))
	}
	return opened, err
}

// readSmall reads a file of the cache, within the limit that ReadFile has online.
func readSmall(name string) ([]byte, error) { return osfile.ReadRegular(name, 64<<20) }

// escapePath escapes each element of a path.
func escapePath(path string) string { return strings.ReplaceAll(url.PathEscape(path), "%2F", "/") }
