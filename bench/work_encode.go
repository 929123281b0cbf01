package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
)

var encodeWork = Work{
	Name:  "encode",
	Title: "Encode a header",
	Intro: `The header of DeepSeek-V3 from the tables in memory, with the data going nowhere.`,
	Unit:  "of header",
	run:   runEncode,
}

func runEncode(b *Bench) error {
	inputs, err := b.headerInputs()
	if err != nil {
		return err
	}
	for _, in := range inputs {
		if in.name == "DeepSeek-V3" {
			return b.encodeOne(in)
		}
	}
	return os.ErrNotExist
}

func (b *Bench) encodeOne(in headerInput) error {
	file, err := mapFile(in.path)
	if err != nil {
		return err
	}
	defer unmap(file)
	all, err := encoders(file)
	if err != nil {
		return err
	}
	header := int64(len(headerOf(file)))
	to := make([]byte, header)
	all = append(all,
		b.rust("safetensors", "`serde_json::to_string` of the `Metadata`", "encode", in.path),
		&Contestant{Name: "limit: memmove", Does: "`copy` of the finished header",
			Run: loop(func() error { copy(to, headerOf(file)); return nil })})
	return b.compare(Case{
		Name:        fmt.Sprintf("%s, %s", in.name, size(header)),
		Bytes:       header,
		Contestants: only(all...),
	})
}

// encoders returns the Go contestants that encode the table of a file.
func encoders(file []byte) ([]*Contestant, error) {
	ours, err := safetensors.Parse(file)
	if err != nil {
		return nil, err
	}
	header := &safetensors.Header{Metadata: ours.Metadata()}
	for name, t := range ours.Tensors() {
		header.Tensors = append(header.Tensors, safetensors.TensorInfo{Name: name, DType: t.DType(), Shape: t.Shape()})
	}
	list, err := maruel.Parse(file)
	if err != nil {
		return nil, err
	}
	deserialized, err := nlpodyssey.Deserialize(file)
	if err != nil {
		return nil, err
	}
	views := make(map[string]nlpodyssey.TensorView)
	for _, t := range deserialized.Tensors() {
		views[t.Name] = t.TensorView
	}
	plain, err := unmarshal(file)
	if err != nil {
		return nil, err
	}
	return []*Contestant{
		{Name: "**this package**", Does: "`NewWriter`: validates the table and lays it out in the order given",
			Run: loop(func() error { return encodeOurs(header) })},
		{Name: "maruel", Does: "`Serialize`: checks sizes, in the order given",
			Run: loop(func() error { return list.Serialize(io.Discard) })},
		{Name: "nlpodyssey", Does: "`SerializeToWriter`: sorts twice",
			Run: loop(func() error { return nlpodyssey.SerializeToWriter(views, ours.Metadata(), io.Discard) })},
		{Name: "encoding/json", Does: "`json.Marshal` of a map of structs: sorts by name",
			Run: loop(func() error { _, err := json.Marshal(plain); return err })},
	}, nil
}

func encodeOurs(header *safetensors.Header) error {
	var written byteCounter
	if _, err := safetensors.NewWriter(&written, header); err != nil {
		return err
	}
	if written < 8 {
		return errors.New("no header written")
	}
	return nil
}

// A byteCounter is a writer that counts.
type byteCounter int64

func (c *byteCounter) Write(p []byte) (int, error) {
	*c += byteCounter(len(p))
	return len(p), nil
}
