package bench

import (
	"bytes"
	"encoding/json"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
)

// A reader is a Go package that reads the table of a whole file in memory.
type reader struct {
	name, does string
	read       func(file []byte) (any, error)
}

// readers are all Go contestants that parse headers, this package first.
func readers() []reader {
	return []reader{
		{"**this package**", "`Parse`: validates everything; tensors can be looked up by name",
			func(file []byte) (any, error) { return safetensors.Parse(file) }},
		{"this package, ReadHeader", "`ReadHeader` from a reader: the same as a list of names, dtypes, shapes and offsets",
			func(file []byte) (any, error) { return safetensors.ReadHeader(bytes.NewReader(file)) }},
		{"maruel", "`Parse`: checks offsets and sizes; a list without lookup by name; knows 15 of 22 dtypes",
			func(file []byte) (any, error) { return maruel.Parse(file) }},
		{"nlpodyssey", "`Deserialize`: checks offsets and sizes; lookup by name; knows 13 of 22 dtypes",
			func(file []byte) (any, error) { return nlpodyssey.Deserialize(file) }},
		{"encoding/json", "`json.Unmarshal` into a map of structs: validates nothing but JSON; duplicates overwrite each other",
			func(file []byte) (any, error) { return unmarshal(file) }},
	}
}

// A plainEntry is what a program without a package for the format would use.
type plainEntry struct {
	DType       string   `json:"dtype"`
	Shape       []int    `json:"shape"`
	DataOffsets [2]int64 `json:"data_offsets"`
}

func unmarshal(file []byte) (map[string]plainEntry, error) {
	var table map[string]plainEntry
	err := json.Unmarshal(headerOf(file), &table)
	delete(table, "__metadata__")
	return table, err
}

// contestants returns the readers on one file.
func contestants(file []byte) []*Contestant {
	var list []*Contestant
	for _, r := range readers() {
		list = append(list, &Contestant{Name: r.name, Does: r.does, Run: loop(func() error {
			_, err := r.read(file)
			return err
		})})
	}
	return list
}
