package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	registry "github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

// typeDocker is the media type of a file that Docker's model runner has packaged
// (https://github.com/docker/model-spec).
const typeDocker = types.MediaType("application/vnd.docker.ai.safetensors")

// A model is an artifact in a registry. It holds the context of all requests.
type model struct {
	ctx    context.Context
	repo   name.Repository
	image  v1.Image                 // for whole layers
	client *remote.Client           // for ranges of them
	files  map[string]v1.Descriptor // the layers that are files, by name
	shards []string                 // those that hold tensors, in the order of the manifest
	index  string                   // "": none, the shards are all there is
}

// openModel reads the manifest.
func openModel(ctx context.Context, reference string) (*model, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	m := &model{ctx: ctx, repo: ref.Context(), files: make(map[string]v1.Descriptor)}
	m.image, err = registry.Image(ref, registry.WithContext(ctx), registry.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return nil, err
	}
	manifest, err := m.image.Manifest()
	if err == nil {
		err = m.addFiles(manifest.Layers)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	auth, err := authn.Resolve(ctx, authn.DefaultKeychain, m.repo)
	if err != nil {
		return nil, err
	}
	t, err := transport.NewWithContext(ctx, m.repo.Registry, auth, registry.DefaultTransport, []string{m.repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	m.client = &remote.Client{HTTP: &http.Client{Transport: t}} // which repeats requests itself, as image does
	return m, nil
}

// addFiles finds the files among the layers. Docker's have no names unless they have
// those of ModelPack, and no index: the order of the layers is that of the shards.
func (m *model) addFiles(layers []v1.Descriptor) error {
	for _, l := range layers {
		file := l.Annotations[filePath]
		if file == "" && l.MediaType == typeDocker {
			file = fmt.Sprintf("layer-%05d.safetensors", len(m.shards)+1)
		}
		switch kind := string(l.MediaType); {
		case strings.Contains(kind, ".model.weight.v1.tar"):
			return fmt.Errorf("layer %q is an archive, %s: its tensors cannot be read by ranges", file, l.MediaType)
		case file == "" || strings.Contains(kind, ".tar"):
			continue
		case l.MediaType == typeDocker, l.MediaType == typeWeight && path.Ext(file) == ".safetensors":
			m.shards = append(m.shards, file)
		case strings.HasSuffix(file, ".safetensors.index.json"):
			m.index = file
		}
		if _, twice := m.files[file]; twice {
			return fmt.Errorf("duplicate file %q", file)
		}
		m.files[file] = l
	}
	return nil
}

// open opens the checkpoint of a model. It reads the index and the headers, and no data.
func open(ctx context.Context, reference string) (*safetensors.File, error) {
	m, err := openModel(ctx, reference)
	if err != nil {
		return nil, err
	}
	if len(m.shards) == 0 {
		return nil, fmt.Errorf("no layer of %s is a safetensors file", m.repo)
	}
	if m.index == "" {
		files := make([]*safetensors.File, len(m.shards))
		for i, shard := range m.shards {
			if files[i], err = m.openShard(shard); err != nil {
				return nil, err
			}
		}
		return safetensors.Join(files...)
	}
	index, err := m.read(m.files[m.index])
	if err != nil {
		return nil, err
	}
	defer index.Close()
	return safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) {
		return m.openShard(path.Join(path.Dir(m.index), shard))
	})
}

// openShard opens a layer for random access.
func (m *model) openShard(file string) (*safetensors.File, error) {
	l, ok := m.files[file]
	if !ok {
		return nil, fmt.Errorf("no layer is the file %q", file)
	}
	f, err := m.client.Open(m.ctx, fmt.Sprintf("%s://%s/v2/%s/blobs/%s", m.repo.Scheme(), m.repo.RegistryStr(), m.repo.RepositoryStr(), l.Digest))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", file, err)
	}
	return f, nil
}

// read returns a reader of a whole layer. At its end there is an error in place of
// io.EOF if the bytes do not have the digest.
func (m *model) read(l v1.Descriptor) (io.ReadCloser, error) {
	layer, err := m.image.LayerByDigest(l.Digest)
	if err != nil {
		return nil, err
	}
	return layer.Compressed()
}

func list(ctx context.Context, stdout io.Writer, reference string) error {
	f, err := open(ctx, reference)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for name, t := range f.Tensors() {
		fmt.Fprintf(w, "%q\t%v\n", name, t)
	}
	return w.Flush()
}

// slice copies a tensor, or one of its equal parts, to a file.
func slice(ctx context.Context, stdout io.Writer, reference, tensor string, dim, rank, of int, file string) error {
	f, err := open(ctx, reference)
	if err != nil {
		return err
	}
	t, err := f.Tensor(tensor)
	if err == nil && of != 1 { // a scalar has no dimension to divide
		t, err = t.Part(dim, rank, of)
	}
	if err != nil {
		return err
	}
	// WriteFile is the first to read data, and reads only that of the part.
	if err := safetensors.WriteFile(file, map[string]safetensors.Tensor{tensor: t}, f.Metadata()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %q %v\n", file, tensor, t)
	return nil
}

// pull copies all files to a folder. A file has its name once its digest is checked.
func pull(ctx context.Context, stdout io.Writer, reference, dir string) error {
	m, err := openModel(ctx, reference)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // a name that leads out of it is an error
	if err != nil {
		return err
	}
	defer root.Close()
	for file, l := range m.files {
		if err := m.copyFile(root, file, l); err != nil {
			return fmt.Errorf("%q: %w", file, err)
		}
	}
	fmt.Fprintf(stdout, "%s: %d files\n", dir, len(m.files))
	return nil
}

func (m *model) copyFile(root *os.Root, file string, l v1.Descriptor) error {
	r, err := m.read(l)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := root.MkdirAll(path.Dir(file), 0o777); err != nil {
		return err
	}
	part := file + ".part"
	w, err := root.Create(part)
	if err != nil {
		return err
	}
	defer root.Remove(part) // unless it has been renamed
	_, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	return root.Rename(part, file)
}
