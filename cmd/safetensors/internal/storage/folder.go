package storage

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/hub"
)

// maxSideFile is the size of the largest file next to weights that is read, in bytes:
// the vocabularies of large models have some 30 MB.
const maxSideFile = 64 << 20

// A Folder is where a checkpoint is, with what lies next to the weights:
// configuration, tokenizers.
type Folder struct {
	fsys  *FS
	whole bool // else it is that of a file: who names one does not mean its neighbors

	repo, commit, dir string // of the whole folder, on the hub; "" if this one is no part of it
	partial           bool   // it is one

	mu    sync.Mutex
	files map[string]content // that were listed or read
}

// A content is what reading a file brought. Up to 1 MiB is remembered: whoever asks again
// gets the same.
type content struct {
	data []byte // nil of a large file, and of one that was not read
	err  error
	pin  Pin
}

// ReadFile returns the content of a file of at most 64 MiB. If there is none of that
// name, the error wraps fs.ErrNotExist. That goes for the nil Folder, too.
func (f *Folder) ReadFile(name string) ([]byte, error) {
	if f == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.files[name]; known.err != nil || known.data != nil {
		return known.data, known.err
	}
	data, err := f.read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	const most = 1 << 20
	c := content{err: err, pin: Pin{name, int64(len(data)), "absent"}}
	if err == nil {
		c.pin.Tag = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	}
	if len(data) <= most {
		c.data = data
	}
	f.files[name] = c
	return data, err
}

// weights are the endings of files that hold tensors, or say where they are.
var weights = []string{
	".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp", ".npz", ".npy", ".bt",
	".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".metadata", ".tmp",
}

// SideFiles returns the names of the files next to the weights, sorted: those of at most
// 64 MiB that hold no tensors and are not hidden.
func (f *Folder) SideFiles() ([]string, error) {
	if f == nil || !f.whole {
		return nil, errors.New("it is not a folder, a bucket or a repository, whose files could come along")
	}
	files, err := f.list()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]string, len(files))
	for i, p := range files {
		names[i] = p.Name
		if _, read := f.files[p.Name]; !read { // of which the sum counts
			f.files[p.Name] = content{pin: p}
		}
	}
	slices.Sort(names)
	return names, nil
}

// comesAlong reports whether a file next to the weights, or in a folder there, is copied with
// them, by its name. Capitals make no other file of it where the system knows none.
func comesAlong(name string) bool {
	name = strings.ToLower(name)
	return fs.ValidPath(name) && !strings.Contains("/"+name, "/.") && !strings.Contains("/"+name+"/", "/__pycache__/") && !IsIndex(name) && !IsTorchIndex(name) &&
		!slices.ContainsFunc(weights, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

// Folder returns the folder as that of a source: whole, if its files belong together. It is nil of
// a web server.
func (f *FS) Folder(whole bool) *Folder {
	if !f.listed {
		return nil
	}
	return &Folder{fsys: f, whole: whole, files: make(map[string]content)}
}

// CompleteFrom makes of the folder what it is a part of: dir of a repository on the hub at a
// commit, of which it has what was downloaded. If config.json is not there or the files are
// listed, those that are missing are read from the hub, if that is not offline.
func (f *Folder) CompleteFrom(repo, commit, dir string) { f.repo, f.commit, f.dir = repo, commit, dir }

func (f *Folder) read(name string) ([]byte, error) {
	data, err := f.fsys.readSideFile(name)
	missing := f.repo != "" && errors.Is(err, fs.ErrNotExist)
	if f.partial = f.partial || missing && name == "config.json"; f.partial && missing {
		return new(hub.Client).ReadFile(f.fsys.session.Context, f.repo, f.commit, path.Join(f.dir, name))
	}
	return data, err
}

// list returns the files that come along.
func (f *Folder) list() (pins []Pin, err error) {
	fsys := f.fsys
	if f.repo != "" {
		whole, _, err := fsys.session.Away("hf://" + path.Join(f.repo+"@"+f.commit, f.dir))
		if err == nil {
			fsys, f.partial = whole, true
		} else if !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	t := &Tree{fsys: fsys, follow: true, skip: func(name string) bool { return !comesAlong(name) }} // without a request
	err = t.folder(".", nil)
	for _, file := range t.Files {
		if file.Size <= maxSideFile {
			pins = append(pins, Pin{file.Name, file.Size, file.Tag})
		}
	}
	return pins, err
}

func (f *FS) readSideFile(name string) ([]byte, error) {
	file, err := f.files.Open(f.in(name))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSideFile+1))
	if err == nil && len(data) > maxSideFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxSideFile)
	}
	return data, err
}

// A Pin is a file as it was when a source was opened. Another machine that opens the
// source has the same pins, unless the source has changed.
type Pin struct {
	Name string `json:"name"` // in the folder of the source; of the second of several sources, 2:NAME
	Size int64  `json:"size"`
	Tag  string `json:"tag"` // an ETag, a time, a sum, a commit
}

// Pinned returns what was read and listed of a folder, by name.
func (f *Folder) Pinned() (pins []Pin) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		pins = append(pins, f.files[name].pin)
	}
	return pins
}

// indexName matches the names of indexes, that of a variant is
// x.safetensors.index.fp16.json.
var indexName = regexp.MustCompile(`(\.\w+)\.index(\.[A-Za-z]\w*)?\.json$`)

// IsIndex reports whether a file is an index of safetensors, by its name.
func IsIndex(name string) bool {
	match := indexName.FindStringSubmatch(name)
	return match != nil && match[1] == ".safetensors"
}

// IsTorchIndex reports whether a file is an index of files of torch.save, by its name.
func IsTorchIndex(name string) bool {
	match := indexName.FindStringSubmatch(name)
	return match != nil && format.ByName(match[1]) == format.Torch
}
