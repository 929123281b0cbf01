package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
)

// A model is a file that consists of a header and a hole.
type model struct {
	name   string
	header func() (header []byte, dataSize int64)
}

const (
	deepSeek = "DeepSeek-V3"
	ignored  = "worst-ignored-field"
)

var models = []model{
	{"llama-1B", func() ([]byte, int64) { return llama(16, 2048, 8192, 512, 128256).header() }},
	{"llama-70B", func() ([]byte, int64) { return llama(80, 8192, 28672, 1024, 32000).header() }},
	{deepSeek, func() ([]byte, int64) { return deepSeekV3(int(sized(256, 8))).header() }},
	{"1M-tensors", func() ([]byte, int64) { return manyExperts(int(sized(1_000_000, 10_000))).header() }},
	{"worst-tensors", func() ([]byte, int64) { return mostTensors(int(sized(1_816_000, 10_000))).header() }},
	{ignored, func() ([]byte, int64) { return ignoredField(int(sized(49_999_900, 100_000))), 0 }},
}

func (m model) file() (path string) {
	return input(m.name+".safetensors", func(path string) {
		header, dataSize := m.header()
		sparseFile(path, header, dataSize)
	})
}

// BenchmarkParse starts from a mapped file whose header is in memory and ends
// with the table of tensors. The headers have the names, dtypes and shapes of
// real models, except that DeepSeek-V3 is BF16 where the model has F8_E4M3,
// which not every contestant knows. The data is a hole in the file. The rows
// named worst have headers of 100,000,000 bytes, the most that the format
// allows, that are meant to hurt: as many tensors as fit, without data and with
// short names, and one tensor with an unknown field of 50 million numbers, which
// a reader has to skip; nlpodyssey rejects it.
//
// What bounds it: half of our time is the scan, 70 ns for an entry of llama-70B
// (119 bytes) on the Xeon of bench/xeon. A quarter of that finds the end of the
// name, and another quarter reads the digits of an offset. The other half of our
// time is the copy of the header, its UTF-8, the index of names and fresh
// memory. A binary header, as bintensors has it, could save no more than the
// scan. Memory is at least the copy of the header, which the names are part of:
// 99 MB for 1M tensors. encoding/json skips the unknown field
// of the last row where it is, and copies nothing.
//
//   - ours: Parse, validates everything; lookup by name
//   - ours-ReadHeader: ReadHeader, the same as a list of names, dtypes, shapes and offsets
//   - maruel: Parse, checks offsets and sizes; a list without lookup; knows 15 of 22 dtypes
//   - nlpodyssey: Deserialize, checks offsets and sizes; lookup by name; knows 13 of 22 dtypes
//   - encoding-json: json.Unmarshal into a map of structs, validates nothing but the JSON
//   - encoding-json-1.27: the same by Go 1.27, whose encoding/json stands on its version 2
//   - encoding-json-v2: the same by encoding/json/v2 of Go 1.27; refuses duplicate names and invalid UTF-8, too
//   - rust: SafeTensors::read_metadata, validates all but duplicate names; lookup by name
//   - python: safe_open, the same in Rust; also opens and maps the file
//   - ztensor: index of ztensor in Python: names, dtypes, shapes and places; opens the file, too
//   - bintensors: BinTensors::read_metadata in Rust, of the same table in binary; lookup by name
//   - limit-utf8: utf8.Valid of the header, which every reader has to check
func BenchmarkParse(b *testing.B) {
	for _, m := range models {
		b.Run(m.name, func(b *testing.B) {
			path := m.file()
			file := mapFile(b, path)
			header := headerOf(file)
			w := work{bytes: int64(len(header)), memory: true}
			timeOnly := work{bytes: w.bytes} // garbage is left between runs, or memory is not comparable
			for _, r := range readers {
				if m.name != ignored || r.impl != "nlpodyssey" {
					b.Run("impl="+r.impl, w.run(func() { must(r.read(file)) }))
				}
			}
			b.Run("impl=encoding-json-1.27", timeOnly.foreign(go127, "parse", path))
			b.Run("impl=encoding-json-v2", timeOnly.foreign(go127, "parse-v2", path))
			b.Run("impl=rust", w.foreign(rust, "parse", path))
			b.Run("impl=python", w.foreign(python, "parse", path))
			b.Run("impl=ztensor", w.foreign(python, "parse-ztensor", path))
			if !strings.HasPrefix(m.name, "worst") {
				b.Run("impl=bintensors", timeOnly.foreign(rust, "bintensors", path))
			}
			b.Run("impl=limit-utf8", w.run(func() {
				if !utf8.Valid(header) {
					b.Fatal("invalid UTF-8")
				}
			}))
		})
	}
}

// readers are the Go contestants that read the table of a file in memory.
var readers = []struct {
	impl string
	read func(file []byte) (any, error)
}{
	{"ours", func(file []byte) (any, error) { return safetensors.Parse(file) }},
	{"ours-ReadHeader", func(file []byte) (any, error) { return safetensors.ReadHeader(bytes.NewReader(file)) }},
	{"maruel", func(file []byte) (any, error) { return maruel.Parse(file) }},
	{"nlpodyssey", func(file []byte) (any, error) { return nlpodyssey.Deserialize(file) }},
	{"encoding-json", func(file []byte) (any, error) { return unmarshal(file) }},
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

// BenchmarkEncode encodes the header of DeepSeek-V3 from the tables in memory.
// The data goes nowhere.
//
// What bounds it: our time includes the validation of the table and the check
// for duplicate names, which the Rust crate's encoder leaves out.
//
//   - ours: NewWriter, validates the table and lays it out in the order given
//   - maruel: Serialize, checks sizes; in the order given
//   - nlpodyssey: SerializeToWriter, sorts twice
//   - encoding-json: json.Marshal of a map of structs, sorts by name
//   - encoding-json-1.27: the same by Go 1.27, whose encoding/json stands on its version 2
//   - encoding-json-v2: the same by encoding/json/v2 of Go 1.27; does not sort
//   - rust: serde_json::to_string of the Metadata
//   - limit-memmove: copy of as many bytes
func BenchmarkEncode(b *testing.B) {
	b.Run(deepSeek, func(b *testing.B) {
		path := models[2].file()
		file := mapFile(b, path)
		header := headerOf(file)
		w := work{bytes: int64(len(header))}
		b.Run("impl=ours", func(b *testing.B) {
			table := must(safetensors.ReadHeader(bytes.NewReader(file)))
			w.measure(b, func() { must(safetensors.NewWriter(io.Discard, table)) })
		})
		b.Run("impl=maruel", func(b *testing.B) {
			f := must(maruel.Parse(file))
			w.measure(b, func() { check(f.Serialize(io.Discard)) })
		})
		b.Run("impl=nlpodyssey", func(b *testing.B) {
			views, metadata := nlpodysseyViews(file), map[string]string{"format": "pt"}
			w.measure(b, func() { check(nlpodyssey.SerializeToWriter(views, metadata, io.Discard)) })
		})
		b.Run("impl=encoding-json", func(b *testing.B) {
			table := must(unmarshal(file))
			w.measure(b, func() { must(json.Marshal(table)) })
		})
		b.Run("impl=encoding-json-1.27", w.foreign(go127, "encode", path))
		b.Run("impl=encoding-json-v2", w.foreign(go127, "encode-v2", path))
		b.Run("impl=rust", w.foreign(rust, "encode", path))
		b.Run("impl=limit-memmove", w.memmove(len(header), 1))
	})
}

// nlpodysseyViews returns the tensors of a file as nlpodyssey writes them.
func nlpodysseyViews(file []byte) map[string]nlpodyssey.TensorView {
	views := make(map[string]nlpodyssey.TensorView)
	for _, t := range must(nlpodyssey.Deserialize(file)).Tensors() {
		views[t.Name] = t.TensorView
	}
	return views
}
