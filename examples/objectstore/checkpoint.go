package objectstore

import (
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors"
	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
)

const indexName = "model.safetensors.index.json"

// openCheckpoint opens the shards of an index as one File. It reads the index and
// the headers, and no data.
func openCheckpoint(d folder) (*safetensors.File, error) {
	index, err := d.NewReader(d.ctx, indexName, nil)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", indexName, err)
	}
	defer index.Close()
	return safetensors.OpenShards(index, d.openShard)
}

func (d folder) openShard(name string) (*safetensors.File, error) {
	o, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return safetensors.NewFile(o, o.Size)
}

// commit makes a checkpoint of the named shards, which must be in the bucket: it
// writes their index. Without it there is no checkpoint. commit reads the headers,
// so that an index never names a shard that is missing or truncated. It replaces no
// index, because new shards under the old index would be neither the old
// checkpoint nor the new.
func commit(d folder, names []string) error {
	files := make([]*safetensors.File, len(names))
	var headers errgroup.Group
	headers.SetLimit(20)
	for i, name := range names {
		headers.Go(func() (err error) {
			files[i], err = d.openShard(name)
			return err
		})
	}
	if err := headers.Wait(); err != nil {
		return err
	}
	index, err := safetensors.NewIndex(func(yield func(string, *safetensors.Header) bool) {
		for i, name := range names {
			if !yield(name, files[i].Header()) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	text, err := index.AppendBinary(nil)
	if err != nil {
		return err
	}
	return d.create(indexName, blob.WriterOptions{IfNotExist: true}, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}
