// Package format has the table of the file formats that the command reads and writes. The
// recognition of files, the help and the destinations follow this table.
package format

import (
	"bytes"
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

// A directory is a checkpoint if it contains the file of a model or the index of its shards, under
// the names that package safetensors gives them.
const (
	Stem      = "model" // the names of shards also start with Stem
	ModelFile = Stem + ".safetensors"
	IndexFile = ModelFile + ".index.json"
)

// A Format is a row of the table.
type Format struct {
	Name    string
	Endings []string // endings of file names, in lower case

	// Recognizes reports whether the content of a file is in the format. It is nil for formats that
	// are not recognized.
	Recognizes func(r io.ReaderAt, size int64) bool

	// Open returns the contents of a file. It is nil for formats that are not read, and for
	// safetensors, which package source opens. key is the value of the flag --key.
	Open func(r io.ReaderAt, size int64, key string) (*Contents, error)

	// Write writes a file. It is nil for formats that are not written.
	Write func(w io.Writer, tensors map[string]safetensors.Tensor, metadata map[string]string) error

	// NoMetadata reports whether the format cannot hold metadata.
	NoMetadata bool

	// Instead is advice for a destination in this format, if it is not written and something similar is.
	Instead string
}

// A Contents holds the tensors and the metadata of a file. Refused maps the name of each entry that
// cannot be read to the reason. If the reason wraps errors.ErrUnsupported, the entry is a tensor of
// a kind that safetensors lacks. Otherwise the entry is an object without tensors that a program
// has stored next to the weights.
type Contents struct {
	Tensors  map[string]safetensors.Tensor
	Metadata map[string]string
	Refused  map[string]error
}

// Safetensors is the first row of the table. A file that no row recognizes is read in this format.
var Safetensors = &Format{
	Name: "safetensors file", Endings: []string{".safetensors"},
	Recognizes: isSafetensors,
	Write:      safetensors.Write,
}

// Torch is the row for files of torch.save. Directories and indexes may also consist of such files.
var Torch = &Format{
	Name: "PyTorch file", Endings: []string{".pt", ".pth", ".bin", ".ckpt"},
	Recognizes: isTorch,
	Open:       openTorch,
}

// Table has a row for each format. The first row that recognizes the content of a file determines
// its format. Formats without Open and Write are in the table so that no directory is given a name
// with their endings.
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
	{Name: "JSON file", Endings: []string{".json", ".jsonl"}},
	{Name: "archive", Endings: []string{".zip", ".tar", ".gz", ".tgz", ".xz", ".zst", ".7z"}},
	{Name: "text file", Endings: []string{".txt", ".md", ".csv", ".tsv", ".log", ".yaml", ".yml", ".toml"}},
	{Name: "HTML page", Endings: []string{".html", ".htm"}},
	{Name: "pickle", Endings: []string{".pkl", ".pickle"}},
	{Name: "raw data file", Endings: []string{".dat", ".data", ".raw", ".weights"}},
	{Name: "TensorFlow file", Endings: []string{".tflite", ".pb"}},
	{Name: "Parquet file", Endings: []string{".parquet"}},
	{Name: "distributed checkpoint", Endings: []string{".distcp"}, Instead: "--ranks N writes a folder that the ranks of a PyTorch job load"},
	{Name: "exported program", Endings: []string{".pt2", ".pte"}},
	{Name: "Keras or NeMo archive", Endings: []string{".keras", ".nemo"}},
	{Name: "signature", Endings: []string{".sig"}},
	{Name: "manifest", Endings: []string{".sha256"}},
}

// openTorch opens a file of torch.save. Entries that safetensors cannot represent are in Refused.
func openTorch(r io.ReaderAt, size int64, key string) (*Contents, error) {
	refused := make(map[string]error)
	o := torch.Opener{Key: key, Skip: func(name string, why error) { refused[name] = why }}
	f, err := o.NewFile(r, size)
	if err != nil {
		return nil, err
	}
	return &Contents{Tensors: maps.Collect(f.Tensors()), Metadata: f.Metadata(), Refused: refused}, nil
}

// Of returns the format in which to read a file. It decides by the content of the file, or else by
// the name. It fails if the content cannot be read.
func Of(r io.ReaderAt, size int64, name string) (*Format, error) {
	content := &reader{ReaderAt: r}
	for _, f := range Table {
		recognized := f.Recognizes != nil && f.Recognizes(content, size)
		if content.err != nil {
			return nil, content.err
		}
		if recognized {
			return f, nil
		}
	}
	if f := ByName(name); f != nil && f.Open != nil {
		return f, nil
	}
	return Safetensors, nil
}

// A reader records the first error of reading, except io.EOF.
type reader struct {
	io.ReaderAt
	err error
}

func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, off)
	if r.err == nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// ByName returns the format that has the ending of a name, or nil.
func ByName(name string) *Format {
	ending := strings.ToLower(path.Ext(name))
	for _, f := range Table {
		if slices.Contains(f.Endings, ending) {
			return f
		}
	}
	return nil
}

// IsJSON reports whether a file has JSON, judging by its name and its first bytes. A safetensors file may also begin with a
// brace, as the lowest byte of the length of its header, but that length contains a byte that is zero.
func IsJSON(r io.ReaderAt, size int64, name string) bool {
	f := ByName(name)
	text := bytes.TrimLeft(head(r, size, 64), " \t\r\n")
	return f != nil && slices.Contains(f.Endings, ".json") && len(text) > 0 && (text[0] == '{' || text[0] == '[') && !bytes.Contains(text, []byte{0})
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

// isSafetensors reports whether a file starts with a header length below 2^27 and a brace, with
// or without white space between them.
func isSafetensors(r io.ReaderAt, size int64) bool {
	head := head(r, size, 9)
	return len(head) == 9 && strings.ContainsRune("{ \t\r\n", rune(head[8])) && head[3] < 8 && string(head[4:8]) == "\x00\x00\x00\x00"
}

// isTorch reports whether a file looks like one of torch.save: a zip archive, or, as before
// PyTorch 1.6, a series of pickles of protocols 2 to 5.
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
