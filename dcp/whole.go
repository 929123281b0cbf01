package dcp

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gosafetensors/safetensors"
)

// A wholeFile is the safetensors file that has the joined tensors. It exists only as
// it is read: its header is made, its data comes from the pieces.
//
// It is an fs.File in a file system of its own, because safetensors.OpenFS closes
// what it reads from, and with it the files of the pieces; NewFile would not.
type wholeFile struct {
	header  []byte
	tensors []storedTensor // in the order of their data; only those with elements
	shards  []shard
	opened  atomic.Bool
}

// A storedTensor is a joined tensor and its place in the file.
type storedTensor struct {
	name       string
	region     *region
	begin, end int64
}

// open returns the file with the tensors of a header.
func (w *wholeFile) open(h *safetensors.Header) (*safetensors.File, error) {
	slices.SortFunc(h.Tensors, func(a, b safetensors.TensorInfo) int {
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
	var err error
	if w.header, err = h.AppendBinary(nil); err != nil {
		return nil, bare(err)
	}
	w.place(h)
	f, err := safetensors.OpenFS(wholeFS{w}, wholeName)
	if err != nil {
		return nil, bare(err)
	}
	w.opened.Store(true)
	return f, nil
}

// place lays the tensors with elements out in the order of the header.
func (w *wholeFile) place(h *safetensors.Header) {
	regions := make(map[string]*region, len(w.tensors))
	for _, t := range w.tensors {
		regions[t.name] = t.region
	}
	w.tensors = w.tensors[:0]
	end := int64(len(w.header))
	for _, info := range h.Tensors {
		if r := regions[info.Name]; r != nil {
			w.tensors = append(w.tensors, storedTensor{info.Name, r, end, end + r.tensor.Size()})
			end += r.tensor.Size()
		}
	}
}

func (w *wholeFile) size() int64 {
	if n := len(w.tensors); n > 0 {
		return w.tensors[n-1].end
	}
	return int64(len(w.header))
}

// Close implements fs.File: it closes the files of the pieces.
func (w *wholeFile) Close() error { return closeAll(w.shards) }

// Read implements fs.File. Nobody calls it, as there is ReadAt.
func (w *wholeFile) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Stat implements fs.File.
func (w *wholeFile) Stat() (fs.FileInfo, error) { return wholeInfo(w.size()), nil }

// A wholeFS is a file system with one file.
type wholeFS struct{ file *wholeFile }

// wholeName is the name of that file.
const wholeName = "joined" + suffix

func (w wholeFS) Open(string) (fs.File, error) { return w.file, nil }

// Stat implements fs.StatFS: OpenFS would open the file and close it otherwise.
func (w wholeFS) Stat(string) (fs.FileInfo, error) { return w.file.Stat() }

// A wholeInfo is the fs.FileInfo of a file of that size.
type wholeInfo int64

func (i wholeInfo) Name() string       { return wholeName }
func (i wholeInfo) Size() int64        { return int64(i) }
func (i wholeInfo) Mode() fs.FileMode  { return 0o444 }
func (i wholeInfo) ModTime() time.Time { return time.Time{} }
func (i wholeInfo) IsDir() bool        { return false }
func (i wholeInfo) Sys() any           { return nil }
