package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/gosafetensors/safetensors"
	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
)

const indexName = "model.safetensors.index.json"

// openCheckpoint opens the shards of an index as one File. It reads the index and
// the headers, and no data.
func openCheckpoint(d folder) (*safetensors.File, error) {
	index, err := d.openIndex()
	if err != nil {
		return nil, err
	}
	defer index.Close()
	return safetensors.OpenShards(index, d.openShard)
}

func (d folder) openIndex() (io.ReadCloser, error) {
	index, err := d.NewReader(d.ctx, indexName, nil)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", indexName, err)
	}
	return index, nil
}

func (d folder) openShard(name string) (*safetensors.File, error) {
	o, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return safetensors.NewFile(o, o.Size)
}

func list(stdout io.Writer, d folder) error {
	f, err := openCheckpoint(d)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for name, t := range f.Tensors() {
		fmt.Fprintf(w, "%q\t%v\n", name, t)
	}
	return w.Flush()
}

// slice copies a tensor, or one of its equal parts, to a file. It reads the index, the
// header of one shard, and of the data the part.
func slice(stdout io.Writer, d folder, name string, dim, rank, of int, file string) error {
	r, err := d.openIndex()
	if err != nil {
		return err
	}
	defer r.Close()
	index, err := safetensors.ReadIndex(r)
	if err != nil {
		return err
	}
	shard, ok := index.Shards[name]
	if !ok {
		return fmt.Errorf("%q has no tensor %q", indexName, name)
	}
	f, err := d.openShard(shard)
	if err != nil {
		return err
	}
	t, err := f.Tensor(name)
	if err == nil && of != 1 { // a scalar has no dimension to divide
		t, err = t.Part(dim, rank, of)
	}
	if err != nil {
		return err
	}
	if err := safetensors.WriteFile(file, map[string]safetensors.Tensor{name: t}, f.Metadata()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %q %v\n", file, name, t)
	return nil
}

// put copies a local checkpoint, whatever its shards, as shards of up to maxBytes
// of data, several at a time. A put that failed can be repeated.
func put(stdout io.Writer, d folder, checkpoint string, maxBytes int64) error {
	switch exists, err := d.Exists(d.ctx, indexName); {
	case err != nil:
		return err
	case exists:
		return fmt.Errorf("%q exists; a checkpoint needs a prefix of its own", indexName)
	}
	f, err := safetensors.Open(checkpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	shards := safetensors.Split(maps.Collect(f.Tensors()), maxBytes)
	uploads, ctx := errgroup.WithContext(d.ctx) // the first error ends the others
	uploads.SetLimit(4)
	for name, shard := range shards {
		uploads.Go(func() error { return putShard(folder{d.Bucket, ctx}, name, shard, f.Metadata()) })
	}
	if err := uploads.Wait(); err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(shards))
	for _, name := range names {
		fmt.Fprintf(stdout, "%s: %d tensors\n", name, len(shards[name]))
	}
	return commit(d, names)
}

// putShard uploads a shard in several parts at a time.
func putShard(d folder, name string, shard map[string]safetensors.Tensor, metadata map[string]string) error {
	size := int64(0)
	for _, t := range shard {
		size += t.Size()
	}
	const part, mostParts = 8 << 20, 9_000 // S3 takes 10,000 of up to 5 GiB
	return d.create(name, blob.WriterOptions{BufferSize: int(max(part, size/mostParts)), MaxConcurrency: 4}, func(w io.Writer) error {
		return safetensors.Write(w, shard, metadata)
	})
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
