package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A listed is a tensor of a listing.
type listed struct {
	Name       string            `json:"name"`
	DType      safetensors.DType `json:"dtype"`      // as in the file: "BF16"
	Shape      []int             `json:"shape"`      // [] for a scalar
	Parameters int64             `json:"parameters"` // the product of the shape
	Bytes      int64             `json:"bytes"`      // in the file
}

// A total sums up tensors.
type total struct {
	DType      safetensors.DType `json:"dtype,omitzero"` // absent in the total of all
	Tensors    int               `json:"tensors"`
	Parameters int64             `json:"parameters"`
	Bytes      int64             `json:"bytes"`
}

func (t *total) add(x listed) {
	t.Tensors++
	t.Parameters = int64(min(uint64(t.Parameters)+uint64(x.Parameters), math.MaxInt64)) // F4 has two a byte
	t.Bytes += x.Bytes
}

// printMetadata prints a table of metadata.
func (c *command) printMetadata(metadata map[string]string) error {
	if len(metadata) == 0 {
		return nil
	}
	columns := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(columns, "METADATA\n")
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		fmt.Fprintf(columns, "%s\t%s\n", term.Name(key), term.Quote(metadata[key], term.ValueLimit))
	}
	return columns.Flush()
}
