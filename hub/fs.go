package hub

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// FS returns the files of a repository, "owner/name", at a branch, tag or commit as a file
// system, for functions that take one, such as OpenFS of package torch. An empty revision is
// "main". FS lists the files with one request, as Files does, and reads them at the listed commit. Stat and
// ReadDir send nothing, Open sends one request. Canceling ctx ends reads of the files, too.
//
// The method Sys of a file's information returns its [FileInfo], and that of a directory the [*Snapshot].
// Open fails if a file does not have the listed size. When Read reaches the end of a file, it compares the content
// with the sum that the hub lists, which is a SHA-256 or the sum of Git, and fails if they differ. So
// [os.CopyFS] is a verified download. ReadAt and ReadRanges read parts of a file and do not compare. Other errors
// are as for Files. Offline, use [os.DirFS] with the directory that CacheDir returns.
func (c *Client) FS(ctx context.Context, repo, revision string) (fs.FS, error) {
	snapshot, at, client, err := c.list(ctx, repo, revision)
	if err != nil {
		return nil, prefix.Add(err)
	}
	f := fileSystem{snapshot: snapshot, sorted: slices.Clone(snapshot.Files), location: at}
	slices.SortFunc(f.sorted, func(a, b FileInfo) int { return cmp.Compare(a.Name, b.Name) })
	for _, file := range f.sorted {
		if len(f.below(file.Name)) > 0 {
			err := fmt.Errorf("the hub's list of files: %.200q is a file and a directory", file.Name)
			return nil, prefix.Add(&fs.PathError{Op: "open", Path: repo, Err: err})
		}
	}
	f.content, err = client.FS(ctx, at.endpoint.JoinPath(escapePath(repo), "resolve", url.PathEscape(snapshot.Commit), "/").String())
	return f, prefix.Add(err)
}

// A fileSystem is a snapshot as an fs.FS.
type fileSystem struct {
	snapshot *Snapshot
	sorted   []FileInfo // files of the snapshot, sorted by name
	content  fs.FS
	location location
}

// below returns the files in a directory and in the directories below it.
func (f fileSystem) below(dir string) []FileInfo {
	if dir == "." {
		return f.sorted
	}
	first, _ := f.search(dir + "/")
	after, _ := f.search(dir + "0") // 0 is the character after the slash
	return f.sorted[first:after]
}

// search returns the index of a file in f.sorted, or the index at which it would be inserted.
func (f fileSystem) search(name string) (int, bool) {
	return slices.BinarySearchFunc(f.sorted, name, func(file FileInfo, name string) int { return cmp.Compare(file.Name, name) })
}

func (f fileSystem) Stat(name string) (fs.FileInfo, error) { return f.stat("stat", name) }

func (f fileSystem) stat(op, name string) (fs.FileInfo, error) {
	i, found := f.search(name)
	switch {
	case !fs.ValidPath(name):
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	case name == "." || len(f.below(name)) > 0:
		return entry{path.Base(name), 0, fs.ModeDir | 0o555, f.snapshot}, nil
	case !found:
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return entry{path.Base(name), f.sorted[i].Size, 0o444, f.sorted[i]}, nil
}

func (f fileSystem) ReadDir(name string) ([]fs.DirEntry, error) {
	info, err := f.stat("readdir", name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fmt.Errorf("%w: it is a file", fs.ErrInvalid)}
	}
	var entries []fs.DirEntry
	last := ""
	for _, file := range f.below(name) {
		base, _, _ := strings.Cut(strings.TrimPrefix(file.Name, name+"/"), "/")
		if base != last {
			e, _ := f.Stat(path.Join(name, base)) // Stat cannot fail, because the list has a file with this name or below it
			entries = append(entries, fs.FileInfoToDirEntry(e))
			last = base
		}
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(a.Name(), b.Name()) })
	return entries, nil
}

func (f fileSystem) Open(name string) (fs.File, error) {
	info, err := f.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		entries, err := f.ReadDir(name)
		return &directory{info, entries}, err
	}
	opened, err := f.content.Open(name)
	if err != nil {
		if refused := f.location.refusalOf(err); refused != nil {
			err = &fs.PathError{Op: "open", Path: name, Err: refused}
		}
		return nil, err
	}
	now, err := opened.Stat()
	if err == nil && info.Size() > 0 && now.Size() >= 0 && now.Size() != info.Size() {
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("it has %s, the hub lists %d", shapetext.Count(now.Size(), "byte"), info.Size())}
	}
	if err != nil {
		opened.Close()
		return nil, err
	}
	if info.Size() == 0 { // the list may lack sizes
		info = entry{info.Name(), now.Size(), info.Mode(), info.Sys()}
	}
	sum, err := newListedSum(info.Sys().(FileInfo), info.Size())
	if err != nil {
		opened.Close()
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &file{File: opened, RangeReader: opened.(safetensors.RangeReader), info: info, name: name, sum: sum}, nil
}

// An entry describes a file or a directory according to the list.
type entry struct {
	name string
	size int64
	mode fs.FileMode
	sys  any
}

func (e entry) Name() string       { return e.name }
func (e entry) Size() int64        { return e.size }
func (e entry) Mode() fs.FileMode  { return e.mode }
func (e entry) IsDir() bool        { return e.mode.IsDir() }
func (e entry) ModTime() time.Time { return time.Time{} }
func (e entry) Sys() any           { return e.sys }

// A directory is an open directory.
type directory struct {
	fs.FileInfo
	entries []fs.DirEntry // entries that ReadDir has not returned yet
}

func (d *directory) Stat() (fs.FileInfo, error) { return d.FileInfo, nil }
func (d *directory) Close() error               { return nil }

func (d *directory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.Name(), Err: fmt.Errorf("%w: it is a directory", fs.ErrInvalid)}
}

func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(d.entries) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.entries) {
		n = len(d.entries)
	}
	read := d.entries[:n]
	d.entries = d.entries[n:]
	return read, nil
}
