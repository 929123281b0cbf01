package hub

import (
	"context"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// The names that most repositories give to a model. safetensors.OpenFS prefers them, too, in this order.
const (
	modelFile = "model.safetensors"
	indexFile = modelFile + ".index.json" // index of a model in several shards
)

// Open is like the method Open of the zero [Client].
func Open(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	return new(Client).Open(ctx, repo, revision)
}

// OpenFile is like the method OpenFile of the zero [Client].
func OpenFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	return new(Client).OpenFile(ctx, repo, revision, name)
}

// Open opens the model in a repository of the hub, "owner/name", at a branch, tag or
// commit; an empty revision is "main". A URL, or a revision within the name as in
// "owner/name@main", is an error. The model is the one that [safetensors.OpenFS] finds in a
// directory with the same files: model.safetensors, or else the shards of
// model.safetensors.index.json; if the repository has neither, the only other index or file, such
// as an adapter or the files of a variant. Shards are opened concurrently. Open reads headers
// only. Canceling ctx ends reads of the File, too.
//
// If HF_HUB_OFFLINE is 1, Open sends nothing: it opens the directory in the cache with
// [safetensors.Open].
//
// Errors are those of [remote.Open] and [safetensors.OpenFS], and name the repository and the
// revision. If the repository has no such file, the error names what it has and wraps
// [fs.ErrNotExist]. The Hugging Face Hub does not tell whether a repository exists that the token
// may not read: the error wraps [fs.ErrPermission] after an answer of 401 or 403, and
// [fs.ErrNotExist] after 404.
func (c *Client) Open(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	return prefix.Added(c.openModel(ctx, repo, revision))
}

// openModel tries the usual names first, because that does not need the list of files. If the repository has
// neither, safetensors.OpenFS chooses from the list, so that its rule is implemented only once.
func (c *Client) openModel(ctx context.Context, repo, revision string) (*safetensors.File, error) {
	r, err := c.repository(ctx, repo, revision, modelFile)
	if err != nil {
		return nil, err
	}
	if r.dir != "" {
		f, err := safetensors.Open(r.dir)
		return f, r.offlineError("", err)
	}
	for _, name := range []string{modelFile, indexFile} {
		f, err := r.open(name)
		if err == nil || !lacksFile(err, name) {
			return f, err
		}
	}
	fsys, err := c.FS(ctx, repo, r.revision)
	if err != nil {
		return nil, prefix.Strip(err)
	}
	f, err := safetensors.OpenFS(fsys, ".")
	if err != nil {
		return nil, r.noModel(fsys, err)
	}
	return f, nil
}

// OpenFile opens one file of a repository, such as an adapter or a component of a
// pipeline. name must be a valid path in the sense of [fs.ValidPath]. If it ends in
// .index.json, or in .safetensors.index.fp16.json as the index of a variant, OpenFile opens
// the shards that the index names, which are next to it. Otherwise OpenFile is
// like Open.
func (c *Client) OpenFile(ctx context.Context, repo, revision, name string) (*safetensors.File, error) {
	r, err := c.repository(ctx, repo, revision, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(r.open(name))
}
