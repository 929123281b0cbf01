// Package format has the table of the file formats that the command knows. Recognition,
// the help and the destinations follow it.
package format

import (
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bintensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/npz"
	"github.com/gosafetensors/safetensors/internal/zipfile"
	"github.com/gosafetensors/safetensors/torch"
)

// The files that make a folder a checkpoint: the model, or the index of its shards, as
// package safetensors writes them.
const (
	Stem      = "model" // that the names of shards start with, too
	ModelFile = Stem + ".safetensors"
	IndexFile = ModelFile + ".index.json"
)

// A Format is a row of the table.
type Format struct {
	Name    string
	Endings []string // of file names, in lower case

	// Recognizes reports whether a file is of the format, by its content.
	Recognizes func(r io.ReaderAt, size int64) bool

	// Open returns the contents of a file. It is nil if the format is not read, and of
	// safetensors. key is the flag --key.
	Open func(r io.ReaderAt, size int64, key string) (*Contents, error)

	// Write writes a file. It is nil if the format is not written.
	Write func(w io.Writer, tensors map[string]safetensors.Tensor, metadata map[string]string) error

	// NoMetadata is true of a format that has no place for metadata.
	NoMetadata bool
}

// Contents are what a file holds. Refused are its entries that cannot be read, by their names, and
// why: objects of a program next to the weights, tensors of kinds that safetensors lacks.
type Contents struct {
	Tensors  map[string]safetensors.Tensor
	Metadata map[string]string
	Refused  map[string]error
}

// Safetensors is the first row, the format of a file that no row recognizes.
var Safetensors = &Format{
	Name: "safetensors file", Endings: []string{".safetensors"},
	Recognizes: isSafetensors,
	Write:      safetensors.Write,
}

// Torch is the row of files of torch.save, which folders and indexes have, too.
var Torch = &Format{
	Name: "PyTorch file", Endings: []string{".pt", ".pth", ".bin", ".ckpt"},
	Recognizes: isTorch,
	Open:       openTorch,
}

// Table has a row for each format. Content is recognized from the first row on. Those
// without Open and Write are here so that no folder gets their endings.
var Table = []*Format{
	Safetensors,
	{
		Name: "NumPy archive", Endings: []string{".npz"},
		Recognizes: func(r io.ReaderAt, size int64) bool { return hasMember(r, size, ".npy") },
		Open: func(r io.ReaderAt, size int64, _ string) (*Contents, error) {
			tensors, refused, err := npz.Open(r, size)
			return &Contents{Tensors: tensors, Refused: refused}, err
		},
		Write: func(w io.Writer, tensors map[string]safetensors.Tensor, _ map[string]string) error {
			return npz.Write(w, tensors)
		},
		NoMetadata: true,
	},
	{
		Name: "NumPy array", Endings: []string{".npy"},
		Recognizes: func(r io.ReaderAt, size int64) bool { return starts(r, size, "\x93NUMPY") },
		Open: func(r io.ReaderAt, size int64, _ string) (*Contents, error) {
			tensors, err := npz.OpenNPY(r, size)
			return &Contents{Tensors: tensors}, err
		},
	},
	Torch,
	{
		Name: "bintensors file", Endings: []string{".bt"},
		Recognizes: func(r io.ReaderAt, size int64) bool { return bintensors.Sniff(head(r, size, 9)) },
		Open: func(r io.ReaderAt, size int64, _ string) (*Contents, error) {
			tensors, metadata, err := bintensors.Open(r, size)
			return &Contents{Tensors: tensors, Metadata: metadata}, err
		},
		Write: bintensors.Write,
	},
	{Name: "GGUF file", Endings: []string{".gguf", ".ggml"}},
	{Name: "ONNX file", Endings: []string{".onnx"}},
	{Name: "HDF5 file", Endings: []string{".h5"}},
	{Name: "MessagePack file", Endings: []string{".msgpack"}},
	{Name: "JSON file", Endings: []string{".json"}},
	{Name: "archive", Endings: []string{".zip", ".tar"}},
}

// openTorch opens a file of torch.save, and leaves out what safetensors cannot hold.
func openTorch(r io.ReaderAt, size int64, key string) (*Contents, error) {
	refused := make(map[string]error)
	o := torch.Opener{Key: key, Skip: func(name string, why error) { refused[name] = why }}
	f, err := o.NewFile(r, size)
	if err != nil {
		return nil, err
	}
	return &Contents{Tensors: maps.Collect(f.Tensors()), Metadata: f.Metadata(), Refused: refused}, nil
}

// Of returns the format to read a file in: by its content, else by its name.
func Of(r io.ReaderAt, size int64, name string) *Format {
	for _, f := range Table {
		if f.Recognizes != nil && f.Recognizes(r, size) {
			return f
		}
	}
	if f := ByName(name); f != nil && f.Open != nil {
		return f
	}
	return Safetensors
}

// ByName returns the format whose ending a name has, or nil.
func ByName(name string) *Format {
	ending := strings.ToLower(path.Ext(name))
	for _, f := range Table {
		if slices.Contains(f.Endings, ending) {
			return f
		}
	}
	return nil
}

// Written lists the endings of the files that can be written: ".safetensors, .npz or …".
func Written() string {
	var endings []string
	for _, f := range Table {
		if f.Write != nil {
			endings = append(endings, f.Endings...)
		}
	}
	return english.WordSeries(endings, "or")
}

// isSafetensors: a file starts with a header length below 2^27, and a brace, perhaps after
// white space.
func isSafetensors(r io.ReaderAt, size int64) bool {
	head := head(r, size, 9)
	return len(head) == 9 && strings.ContainsRune("{ \t\r\n", rune(head[8])) && head[3] < 8 && string(head[4:8]) == "\x00\x00\x00\x00"
}

// isTorch: torch.save writes a zip archive; before PyTorch 1.6 it wrote pickles, of
// protocols 2 to 5.
func isTorch(r io.ReaderAt, size int64) bool {
	h := head(r, size, 2)
	return len(h) == 2 && h[0] == 0x80 && 2 <= h[1] && h[1] <= 5 || hasMember(r, size, "data.pkl")
}

// hasMember reports whether a file is a zip archive with a member whose name ends in
// suffix.
func hasMember(r io.ReaderAt, size int64, suffix string) bool {
	return starts(r, size, "PK") && zipfile.Holds(r, size, suffix)
}

func starts(r io.ReaderAt, size int64, text string) bool {
	return string(head(r, size, len(text))) == text
}

// head returns the first n bytes of a file, or all if it has fewer.
func head(r io.ReaderAt, size int64, n int) []byte {
	b := make([]byte, min(int64(n), size))
	n, _ = r.ReadAt(b, 0)
	return b[:n]
}
