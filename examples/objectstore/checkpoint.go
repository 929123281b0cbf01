package objectstore

import (
	"github.com/gosafetensors/safetensors"
	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
)

const indexName = "model.safetensors.index.json"

// commit writes the index of shards that are in the bucket. Only the index makes them a checkpoint.
// commit reads their headers, so that an index never names a shard that is missing or truncated. It
// does not replace an index, because between the first new shard and the new index, the checkpoint
// would be a mixture of the old one and the new one.
func commit(d folder, names []string) error {
	files := make([]*safetensors.File, len(names))
	var headers errgroup.Group
	headers.SetLimit(20)
	for i, name := range names {
		headers.Go(func() (err error) {
			files[i], err = d.open(name)
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
	return d.WriteAll(d.ctx, indexName, text, &blob.WriterOptions{IfNotExist: true})
}
