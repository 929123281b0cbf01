package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/gosafetensors/safetensors"
)

// The media types and the annotation of ModelPack.
const (
	artifactType   = "application/vnd.cncf.model.manifest.v1+json"
	typeConfig     = types.MediaType("application/vnd.cncf.model.config.v1+json")
	typeWeight     = types.MediaType("application/vnd.cncf.model.weight.v1.raw")
	typeConfigFile = types.MediaType("application/vnd.cncf.model.weight.config.v1.raw")
	typeDoc        = types.MediaType("application/vnd.cncf.model.doc.v1.raw")
	filePath       = "org.cncf.model.filepath"
)

// push uploads the files of a folder, then the manifest under the tag: whoever pulls
// the tag finds all of the model, or what the tag was before. Layers that the registry
// has already are not uploaded again.
func push(ctx context.Context, stdout io.Writer, reference, dir string) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	f, err := safetensors.Open(dir) // is it a checkpoint?
	if err != nil {
		return err
	}
	f.Close()
	a := &artifact{dir: dir}
	if a.Layers, err = describeFiles(dir); err != nil {
		return err
	}
	var digests []v1.Hash
	for _, l := range a.Layers {
		digests = append(digests, l.Digest)
	}
	a.config, err = json.Marshal(map[string]any{ // without a time, so that the same folder has the same digest
		"descriptor": struct{}{},
		"config":     map[string]string{"format": "safetensors"},
		"modelfs":    map[string]any{"type": "layers", "diffIds": digests},
	})
	if err != nil {
		return err
	}
	a.SchemaVersion, a.Manifest.MediaType, a.ArtifactType = 2, types.OCIManifestSchema1, artifactType
	a.Config.MediaType = typeConfig
	if a.Config.Digest, a.Config.Size, err = v1.SHA256(bytes.NewReader(a.config)); err != nil {
		return err
	}
	image, err := partial.CompressedToImage(a)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, image, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %d layers\n", ref, len(a.Layers))
	return nil
}

// describeFiles describes a layer for each file of a folder, by name.
func describeFiles(dir string) (layers []v1.Descriptor, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		d := v1.Descriptor{MediaType: typeConfigFile, Annotations: map[string]string{filePath: e.Name()}}
		switch filepath.Ext(e.Name()) {
		case ".safetensors":
			d.MediaType = typeWeight
		case ".md", "":
			d.MediaType = typeDoc
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		d.Digest, d.Size, err = v1.SHA256(f)
		f.Close()
		if err != nil {
			return nil, err
		}
		layers = append(layers, d)
	}
	return layers, nil
}

// An artifact is a manifest, and where its layers are.
type artifact struct {
	v1.Manifest
	dir    string
	config []byte
}

func (a *artifact) RawConfigFile() ([]byte, error)      { return a.config, nil }
func (a *artifact) RawManifest() ([]byte, error)        { return json.Marshal(a.Manifest) }
func (a *artifact) MediaType() (types.MediaType, error) { return a.Manifest.MediaType, nil }

func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	i := slices.IndexFunc(a.Layers, func(l v1.Descriptor) bool { return l.Digest == digest })
	return fileLayer{a.dir, a.Layers[i]}, nil // only those of the manifest are asked for
}

// A fileLayer is a file as it is.
type fileLayer struct {
	dir string
	v1.Descriptor
}

func (l fileLayer) Digest() (v1.Hash, error)            { return l.Descriptor.Digest, nil }
func (l fileLayer) Size() (int64, error)                { return l.Descriptor.Size, nil }
func (l fileLayer) MediaType() (types.MediaType, error) { return l.Descriptor.MediaType, nil }

func (l fileLayer) Compressed() (io.ReadCloser, error) {
	return os.Open(filepath.Join(l.dir, l.Annotations[filePath]))
}
