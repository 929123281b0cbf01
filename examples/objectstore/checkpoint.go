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

// openCheckpoint opens the shards of an index as one File. It reads the index
// and the headers; all else is read when it is asked for.
func openCheckpoint(d folder) (*safetensors.File, error) {
	index, err := d.read(indexName)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	return safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) { return openShard(d, shard) })
}

func openShard(d folder, name string) (*safetensors.File, error) {
	o, err := d.open(name)
	if err != nil {
		return nil, err
	}
	return safetensors.NewFile(o, o.size)
}

func list(stdout io.Writer, d folder) error {
	f, err := openCheckpoint(d)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for name, t := range f.Tensors() {
		fmt.Fprintf(w, "%q\t%v\t%v\n", name, t.DType(), t.Shape())
	}
	return w.Flush()
}

// A part is what one rank holds of a tensor: the tensor is cut along a dimension
// into parts of the same size, or nearly so.
type part struct {
	tensor        string
	rank, of, dim int
}

// find returns the part as a tensor. It reads no data.
func (p part) find(f *safetensors.File) (safetensors.Tensor, error) {
	t, err := f.Tensor(p.tensor)
	switch {
	case err != nil:
		return t, err
	case p.of < 1 || p.rank < 0 || p.rank >= p.of:
		return t, fmt.Errorf("there is no rank %d of %d", p.rank, p.of)
	case p.of == 1:
		return t, nil
	case p.dim < 0 || p.dim >= len(t.Shape()):
		return t, fmt.Errorf("%q has shape %v, and no dimension %d to cut", p.tensor, t.Shape(), p.dim)
	}
	ranges := make([]safetensors.Range, p.dim+1) // the zero Range is All()
	size := t.Shape()[p.dim]
	ranges[p.dim] = safetensors.Span(p.rank*size/p.of, (p.rank+1)*size/p.of)
	return t.Slice(ranges...)
}

// slice copies a part of a tensor to a file.
func slice(stdout io.Writer, d folder, p part, file string) error {
	f, err := openCheckpoint(d)
	if err != nil {
		return err
	}
	t, err := p.find(f)
	if err != nil {
		return err
	}
	// Only here data is read, and only that of the part.
	if err := safetensors.WriteFile(file, map[string]safetensors.Tensor{p.tensor: t}, f.Metadata()); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %q %v %v\n", file, p.tensor, t.DType(), t.Shape())
	return nil
}

// put copies a local checkpoint, whatever its shards, as shards of up to maxBytes
// of data. The index comes last: until it is there, so is no checkpoint, and a put
// that failed can be repeated. A checkpoint that is there stays as it is, since
// new shards under its index would be neither the old one nor the new.
func put(stdout io.Writer, d folder, checkpoint string, maxBytes int64) error {
	var none *types.NotFound
	if _, err := d.open(indexName); err == nil {
		return fmt.Errorf("%s is there already; a checkpoint needs a prefix of its own", d.url(indexName))
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
