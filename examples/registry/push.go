package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/gosafetensors/safetensors"
	"golang.org/x/sync/errgroup"
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

// A config describes a model. It has no time, so that the same folder has the same
// digest whenever it is pushed.
type config struct {
	Descriptor struct{} `json:"descriptor"`
	Config     struct {
		Format    string `json:"format"`
		ParamSize string `json:"paramSize"`
		Precision string `json:"precision"`
	} `json:"config"`
	ModelFS struct {
		Type    string    `json:"type"`
		DiffIDs []v1.Hash `json:"diffIds"`
	} `json:"modelfs"`
}

// newConfig describes an opened checkpoint in these layers.
func newConfig(f *safetensors.File, layers []v1.Descriptor) (c config) {
	total, most := int64(0), int64(-1)
	for dtype, n := range f.ParameterCount() {
		total += n
		if n > most {
			most, c.Config.Precision = n, strings.ToLower(dtype.String())
		}
	}
	c.Config.Format, c.Config.ParamSize = "safetensors", paramSize(total)
	c.ModelFS.Type = "layers"
	for _, l := range layers {
		c.ModelFS.DiffIDs = append(c.ModelFS.DiffIDs, l.Digest)
	}
	return c
}

// paramSize spells a number as ModelPack does: a decimal and a letter.
func paramSize(n int64) string {
	size, letter := float64(n)/1e3, 0
	for size >= 999.95 && letter < 4 {
		size /= 1e3
		letter++
	}
	return fmt.Sprintf("%.1f%c", size, "kmbtq"[letter])
}

// push uploads the files of a folder, then the manifest under the tag: whoever pulls
// the tag finds all of the model, or what the tag was before. Layers that the registry
// has already are not uploaded again.
func push(ctx context.Context, stdout io.Writer, reference, dir string) error {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	f, err := safetensors.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	files, err := describeFiles(dir)
	if err != nil {
		return err
	}
	description, err := json.Marshal(newConfig(f, files))
	if err != nil {
		return err
	}
	configLayer := static.NewLayer(description, typeConfig)
	digest, err := configLayer.Digest()
	if err != nil {
		return err
	}
	auth := remote.WithAuthFromKeychain(authn.DefaultKeychain)
	uploads, uploading := errgroup.WithContext(ctx) // the first error ends the others
	uploads.SetLimit(4)
	for _, d := range files {
		uploads.Go(func() error {
			return remote.WriteLayer(ref.Context(), fileLayer{dir, d}, auth, remote.WithContext(uploading))
		})
	}
	uploads.Go(func() error {
		return remote.WriteLayer(ref.Context(), configLayer, auth, remote.WithContext(uploading))
	})
	if err := uploads.Wait(); err != nil {
		return err
	}
	manifest := manifest{v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  artifactType,
		Config:        v1.Descriptor{MediaType: typeConfig, Digest: digest, Size: int64(len(description))},
		Layers:        files,
	}}
	if err := remote.Put(ref, manifest, auth, remote.WithContext(ctx)); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %d layers\n", ref, len(files))
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

// A manifest is what remote.Put uploads.
type manifest struct{ v1.Manifest }

func (m manifest) RawManifest() ([]byte, error)        { return json.Marshal(m.Manifest) }
func (m manifest) MediaType() (types.MediaType, error) { return m.Manifest.MediaType, nil }

// A fileLayer is a v1.Layer of a file as it is.
type fileLayer struct {
	dir string
	v1.Descriptor
}

func (l fileLayer) Digest() (v1.Hash, error)             { return l.Descriptor.Digest, nil }
func (l fileLayer) DiffID() (v1.Hash, error)             { return l.Descriptor.Digest, nil }
func (l fileLayer) Size() (int64, error)                 { return l.Descriptor.Size, nil }
func (l fileLayer) MediaType() (types.MediaType, error)  { return l.Descriptor.MediaType, nil }
func (l fileLayer) Uncompressed() (io.ReadCloser, error) { return l.Compressed() }

func (l fileLayer) Compressed() (io.ReadCloser, error) {
	return os.Open(filepath.Join(l.dir, l.Annotations[filePath]))
}
