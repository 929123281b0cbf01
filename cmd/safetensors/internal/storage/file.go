package storage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/gosafetensors/safetensors/hub"
)

// A File is one of the files of a source.
type File struct {
	Name string   // slash-separated, in the folder of the source
	Path string   // of a local file, as the system has it; else ""
	Size int64    // -1 if that is not known
	Tag  string   // is another when the file has changed; "" if that cannot be known
	Hub  *HubFile // what the hub says of it; nil if it is not from there
	Open func() (io.ReadCloser, error)
}

// tagOf returns what tells that a file has changed: what names the content on a hub, the ETag of
// an object or of a web server, or the time.
func tagOf(info fs.FileInfo) string {
	switch about := info.Sys().(type) {
	case hub.FileInfo:
		return about.BlobID
	case http.Header:
		return cmp.Or(about.Get("ETag"), about.Get("Last-Modified"))
	}
	return info.ModTime().UTC().Format(time.RFC3339Nano)
}

// describe returns what the file system says of a file.
func (f *FS) describe(name string, info fs.FileInfo) File {
	file := File{Name: name, Size: info.Size(), Tag: tagOf(info), Open: func() (io.ReadCloser, error) { return f.reopen(name, tagOf(info)) }}
	if f.local() {
		file.Path = f.in(name)
	}
	if about, ok := info.Sys().(hub.FileInfo); ok {
		file.Hub, _ = hubFile(about) // nil cannot be compared
	}
	return file
}

// OfReader describes a file that is open, of size bytes.
func (s *Session) OfReader(name string, r readable, size int64) File {
	return File{Name: name, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(s.Meter(r), 0, size)), nil
	}}
}

var errChanged = errors.New("has changed since it was opened")

// Unchanged returns an error if a local file is no longer what it was when it was described. Other
// files need no look: each answer says what it is of.
func (f File) Unchanged() error {
	if f.Path == "" {
		return nil
	}
	info, err := os.Stat(f.Path)
	if err == nil && (info.Size() != f.Size || tagOf(info) != f.Tag) {
		err = fmt.Errorf("%s %w", f.Name, errChanged)
	}
	return err
}

// CopyTo writes the whole file. It is an error if that is no longer what it was when the source
// was opened, or not what the hub says.
func (f File) CopyTo(w io.Writer) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	var sum hash.Hash
	if f.Hub != nil {
		sum = f.Hub.Hash(f.Size)
		w = io.MultiWriter(w, sum)
	}
	n, err := io.Copy(w, r)
	switch {
	case err != nil:
	case f.Hub != nil && !f.Hub.Matches(sum.Sum(nil)):
		err = fmt.Errorf("%s does not have the sum that the hub gives", f.Name)
	case f.Size >= 0 && n != f.Size:
		err = fmt.Errorf("%s %w: %d bytes, was %d bytes", f.Name, errChanged, n, f.Size)
	}
	return err
}

// reopen opens a file for reading it as a whole. Unless the tag is "", it must still have it.
func (f *FS) reopen(name, tag string) (io.ReadCloser, error) {
	file, err := f.files.Open(f.in(name))
	if err != nil {
		return nil, err
	}
	r, ok := file.(readable)
	info, err := file.Stat()
	if err == nil && (!ok || tag != "" && tagOf(info) != tag) {
		err = &fs.PathError{Op: "open", Path: name, Err: errChanged}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return metered{r, f.session}, nil
}

// A HubFile is a file of a repository as the hub describes it.
type HubFile struct {
	sum []byte
	git bool // it is that of a git blob
}

// Hash returns the hash of the sum that the hub publishes: SHA-256 of large files, which
// are in LFS, and the git blob hash of the others.
func (f *HubFile) Hash(size int64) hash.Hash {
	h := sha256.New()
	if len(f.sum) == sha1.Size { // else it is a large file, or the repository of the newer kind
		h = sha1.New()
	}
	if f.git {
		fmt.Fprintf(h, "blob %d\x00", size)
	}
	return h
}

// Matches reports whether a sum is the one of the hub.
func (f *HubFile) Matches(sum []byte) bool { return bytes.Equal(f.sum, sum) }

// HubFiles returns the files of a repository by their names, with their sums.
func (s *Session) HubFiles(repo, revision string) (map[string]*HubFile, error) {
	snapshot, err := new(hub.Client).Files(s.Context, repo, revision)
	if err != nil {
		return nil, cmp.Or(context.Cause(s.Context), err)
	}
	files := make(map[string]*HubFile, len(snapshot.Files))
	for _, info := range snapshot.Files {
		if files[info.Name], err = hubFile(info); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func hubFile(info hub.FileInfo) (*HubFile, error) {
	git, text := info.SHA256 == "", cmp.Or(info.SHA256, info.BlobID)
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != sha256.Size && !(git && len(sum) == sha1.Size) {
		return nil, fmt.Errorf("the hub gives %.200q the sum %.200q", info.Name, text)
	}
	return &HubFile{sum, git}, nil
}
