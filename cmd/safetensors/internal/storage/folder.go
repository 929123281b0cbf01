package storage

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// maxSideFile is the size in bytes of the largest file next to weights that is read. The
// vocabularies of large models have some 30 MB.
const maxSideFile = 64 << 20

// A Folder is the folder of a checkpoint. It provides the files next to the weights, such as
// configuration and tokenizers.
type Folder struct {
	fsys  *FS
	whole bool // whether the source is the folder; otherwise it is a file, and its neighbors do not belong to it

	repo, commit, dir string // place of the whole folder on the hub; "" if this folder does not belong to a folder on the hub
	partial           bool   // whether this folder is only a part of the whole folder

	mu    sync.Mutex
	files map[string]content // files that were listed or read, by name

	tooLarge []Pin // files that SideFiles has left out because of their size
}

// A content is the result of reading a file. Up to 1 MiB are cached, so that later reads give the
// same result.
type content struct {
	data []byte // nil for a large file, or for one that was not read
	err  error
	pin  Pin
}

// ReadFile returns the content of a file of at most 64 MiB. If there is no file with this name, the
// error wraps fs.ErrNotExist. A nil Folder has no files.
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

// weights are the endings of files that contain tensors, or that specify the places of tensors.
var weights = []string{
	".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".distcp", ".npz", ".npy", ".bt",
	".gguf", ".ggml", ".onnx", ".h5", ".msgpack", ".metadata", ".tmp",
}

// Whole reports whether f is the source itself, and not only the folder of a file.
func (f *Folder) Whole() bool { return f != nil && f.whole }

// SideFiles returns the sorted names of the files next to the weights: those of at most 64 MiB that
// contain no tensors and are not hidden.
func (f *Folder) SideFiles() ([]string, error) {
	if !f.Whole() {
		return nil, errors.New("it is a file, and this flag copies the files of a folder, a bucket or a repository")
	}
	files, tooLarge, err := f.list()
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tooLarge = tooLarge
	names := make([]string, len(files))
	for i, p := range files {
		names[i] = p.Name
		if _, read := f.files[p.Name]; !read { // if the file was read, keep its pin, which has the checksum
			f.files[p.Name] = content{pin: p}
		}
	}
	slices.Sort(names)
	return names, nil
}

// comesAlong reports whether a file next to the weights, or in a folder below, is copied with them,
// judging by its name. It ignores case, because some file systems do.
func comesAlong(name string) bool {
	name = strings.ToLower(name)
	return fs.ValidPath(name) && !strings.Contains("/"+name, "/.") && !strings.Contains("/"+name+"/", "/__pycache__/") && !OfWeights(name)
}

// OfWeights reports whether a file may contain tensors or specify their places, judging by its name in lower case.
func OfWeights(name string) bool {
	return IsIndex(name) || IsTorchIndex(name) || slices.ContainsFunc(weights, func(ending string) bool { return strings.HasSuffix(name, ending) })
}

// WeightFiles returns the sorted names of all files in the folder itself that may contain tensors or specify their places.
// They may be no part of the source. There are none if the source is a file.
func (f *Folder) WeightFiles() (names []string, err error) {
	if !f.Whole() {
		return nil, nil
	}
	entries, err := f.fsys.Entries()
	for _, e := range entries {
		if !e.IsDir() && OfWeights(strings.ToLower(e.Name())) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// Folder returns f as the Folder of a source. whole means that the source is the whole folder.
// Folder returns nil for a web server.
func (f *FS) Folder(whole bool) *Folder {
	if !f.listed {
		return nil
	}
	return &Folder{fsys: f, whole: whole, files: make(map[string]content)}
}

// CompleteFrom makes f complete: f is the part of a folder that was downloaded to the cache, and
// the whole folder is the directory dir in a repository on the hub, at a commit. If config.json is
// missing, or the files are listed, missing files are read from the hub, unless it is offline.
func (f *Folder) CompleteFrom(repo, commit, dir string) { f.repo, f.commit, f.dir = repo, commit, dir }

func (f *Folder) read(name string) ([]byte, error) {
	data, err := f.fsys.readSideFile(name)
	missing := f.repo != "" && errors.Is(err, fs.ErrNotExist)
	if f.partial = f.partial || missing && name == "config.json"; f.partial && missing {
		return new(hub.Client).ReadFile(f.fsys.session.Context, f.repo, f.commit, path.Join(f.dir, name))
	}
	return data, err
}

// list returns the pins of the files that are copied with the weights, and of those that are too large for that.
func (f *Folder) list() (pins, tooLarge []Pin, err error) {
	fsys := f.fsys
	if f.repo != "" {
		whole, _, err := fsys.session.Away("hf://" + path.Join(f.repo+"@"+f.commit, f.dir))
		if err == nil {
			fsys, f.partial = whole, true
		} else if !errors.Is(err, errors.ErrUnsupported) {
			return nil, nil, err
		}
	}
	t := &Tree{fsys: fsys, follow: true, skip: func(name string) bool { return !comesAlong(name) }} // skip sends no request
	err = t.folder(".", nil)
	for _, file := range t.Files {
		if pin := (Pin{file.Name, file.Size, file.Tag}); file.Size <= maxSideFile {
			pins = append(pins, pin)
		} else {
			tooLarge = append(tooLarge, pin)
		}
	}
	return pins, tooLarge, err
}

// TooLarge returns the files that the last call of SideFiles left out because they have more than 64 MiB.
func (f *Folder) TooLarge() []Pin {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tooLarge)
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

// A Pin identifies a file and its state when a source was opened. Another machine that opens the
// source gets the same pins, unless the source has changed.
type Pin struct {
	Name string `json:"name"` // name in the folder of the source; 2:NAME for the second of several sources
	Size int64  `json:"size"`
	Tag  string `json:"tag"` // an ETag, a time, a checksum or a commit
}

// Pinned returns the pins of the files in a folder that were read or listed, sorted by name.
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

// indexName matches the names of indexes, including that of a variant:
// x.safetensors.index.fp16.json.
var indexName = lazyregexp.New(`(\.\w+)\.index(\.[A-Za-z]\w*)?\.json$`)

// IsIndex reports whether a file is an index of safetensors files, judging by its name.
func IsIndex(name string) bool {
	match := indexName().FindStringSubmatch(name)
	return match != nil && match[1] == ".safetensors"
}

// IsTorchIndex reports whether a file is an index of files of torch.save, judging by its name.
func IsTorchIndex(name string) bool {
	match := indexName().FindStringSubmatch(name)
	return match != nil && format.ByName(match[1]) == format.Torch
}
