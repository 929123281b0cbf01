package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gosafetensors/safetensors"
)

const indexName = "model.safetensors.index.json"

// openCheckpoint opens the shards of an index as one File. It reads the index and
// the headers, and no data.
func openCheckpoint(d folder) (*safetensors.File, error) {
	index, err := d.read(indexName)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	return safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) {
		o, err := d.open(shard)
		if err != nil {
			return nil, err
		}
		return safetensors.NewFile(o, o.size)
	})
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

// slice copies a tensor, or one of its equal parts, to a file.
func slice(stdout io.Writer, d folder, name string, dim, rank, of int, file string) error {
	f, err := openCheckpoint(d)
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
	// WriteFile is the first to read data, and reads only that of the part.
	if err := safetensors.WriteFile(file, map[string]safetensors.Tensor{name: t}, f.Metadata()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %q %v\n", file, name, t)
	return nil
}

// put copies a local checkpoint, whatever its shards, as shards of up to maxBytes
// of data. The index comes last: without it there is no checkpoint, and a put that
// failed can be repeated. put does not replace a checkpoint, because new shards
// under the old index would be neither the old checkpoint nor the new.
func put(stdout io.Writer, d folder, checkpoint string, maxBytes int64) error {
	var none *types.NotFound
	if _, err := d.open(indexName); err == nil {
		return fmt.Errorf("%s exists; a checkpoint needs a prefix of its own", d.url(indexName))
	} else if !errors.As(err, &none) {
		return err
	}
	f, err := safetensors.Open(checkpoint)
	if err != nil {
		return err
	}
	defer f.Close()
	shards := safetensors.Split(maps.Collect(f.Tensors()), maxBytes)
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		err := d.create(name, func(w io.Writer) error { return safetensors.Write(w, shards[name], f.Metadata()) })
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: %d tensors\n", d.url(name), len(shards[name]))
	}
	index, err := safetensors.BuildIndex(shards)
	if err != nil {
		return err
	}
	return d.create(indexName, func(w io.Writer) error {
		_, err := w.Write(index)
		return err
	})
}
