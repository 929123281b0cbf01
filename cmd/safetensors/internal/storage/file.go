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
	"strings"
	"time"

	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A File describes one of the files of a source.
type File struct {
	Name string   // slash-separated name in the folder of the source
	Path string   // path of a local file, in the form of the system; otherwise ""
	Size int64    // size in bytes; -1 if unknown
	Tag  string   // changes when the file changes; "" if that cannot be known
	Hub  *HubFile // description by the hub; nil if the file is not from a hub
	Open func() (io.ReadCloser, error)
}

// tagOf returns a text that changes when a file changes: the identifier of the content on a hub,
// the ETag of an object or a file on a web server, or the modification time.
func tagOf(info fs.FileInfo) string {
	switch about := info.Sys().(type) {
	case hub.FileInfo:
		return about.BlobID
	case http.Header:
		return cmp.Or(about.Get("ETag"), about.Get("Last-Modified"))
	}
	return info.ModTime().UTC().Format(time.RFC3339Nano)
}

// describe returns a description of a file of f.
func (f *FS) describe(name string, info fs.FileInfo) File {
	file := File{Name: name, Size: info.Size(), Tag: tagOf(info), Open: func() (io.ReadCloser, error) { return f.reopen(name, tagOf(info)) }}
	if f.local {
		file.Path = f.in(name)
	}
	if about, ok := info.Sys().(hub.FileInfo); ok {
		file.Hub, _ = hubFile(about) // hubFile fails only for sums that cannot be compared, and then returns nil
	}
	return file
}

// OfReader describes an open file of size bytes.
func (s *Session) OfReader(name string, r readable, size int64) File {
	return File{Name: name, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(s.Meter(r, name), 0, size)), nil
	}}
}

var errChanged = errors.New("has changed since it was opened")

// Unchanged returns an error if a local file has changed since it was described. Other files need
// no check, because each answer identifies the file.
func (f File) Unchanged() error {
	if f.Path == "" {
		return nil
	}
	info, err := os.Stat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s %w: it was removed", f.Name, errChanged)
	case err == nil && (info.Size() != f.Size || f.Tag != "" && tagOf(info) != f.Tag):
		err = fmt.Errorf("%s %w", f.Name, errChanged)
	}
	return err
}

// CheckRead returns an error if n, the number of bytes that were read of the whole file, is not its
// size, or if the file has changed since it was described: then the bytes may be a mixture.
func (f File) CheckRead(n int64) error {
	if f.Size >= 0 && n != f.Size {
		return fmt.Errorf("%s %w: %s, was %s", f.Name, errChanged, shapetext.Count(n, "byte"), shapetext.Count(f.Size, "byte"))
	}
	return f.Unchanged()
}

// CopyTo writes the whole file to w. It is an error if the file has changed since the source was
// opened, or differs from its description by the hub.
func (f File) CopyTo(w io.Writer) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(w, r) // fails at the end of a file whose checksum differs from that of the hub
	if err == nil && f.Size >= 0 && n != f.Size {
		err = fmt.Errorf("%s %w: %s, was %s", f.Name, errChanged, shapetext.Count(n, "byte"), shapetext.Count(f.Size, "byte"))
	}
	return err
}

// Content identifies the content of a remote file by the sum that a hub lists, or by a strong ETag. It is ""
// for a file of this machine, and for a file that has neither.
func (f File) Content() string {
	switch {
	case f.Path != "" || f.Size < 0:
	case f.Hub != nil:
		return fmt.Sprintf("%x", f.Hub.sum)
	case strings.HasPrefix(f.Tag, `"`) || strings.HasPrefix(f.Tag, "0x"):
		return f.Tag
	}
	return ""
}

// CopyFrom writes the bytes of a file from offset off to its end. If the file has changed since the source was
// opened, that is an error.
func (f File) CopyFrom(w io.Writer, off int64) error {
	if off == 0 {
		return f.CopyTo(w)
	}
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	at, ok := r.(io.ReaderAt)
	if !ok {
		return fmt.Errorf("%s can only be read from its start", f.Name)
	}
	const block = 8 << 20
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.NewSectionReader(at, off, f.Size-off)}, make([]byte, block))
	if err == nil && n != f.Size-off {
		err = fmt.Errorf("%s %w: %s, was %s", f.Name, errChanged, shapetext.Count(off+n, "byte"), shapetext.Count(f.Size, "byte"))
	}
	return err
}

// reopen opens a file for reading it as a whole. Unless tag is "", the file must still have this
// tag.
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
	return metered{r, f.session, f.shown(name)}, nil
}

// A HubFile holds the checksum that the hub lists for a file of a repository.
type HubFile struct {
	sum []byte
	git bool // whether sum is the hash of a git blob
}

// Hash returns the hash that computes the sum published by the hub: SHA-256 for large files, which
// are in LFS, and the git blob hash for others. size is the size of the file.
func (f *HubFile) Hash(size int64) hash.Hash {
	h := sha256.New()
	if len(f.sum) == sha1.Size { // otherwise the file is large, or the repository is of a newer kind
		h = sha1.New()
	}
	if f.git {
		fmt.Fprintf(h, "blob %d\x00", size)
	}
	return h
}

// Matches reports whether a sum equals that of the hub.
func (f *HubFile) Matches(sum []byte) bool { return bytes.Equal(f.sum, sum) }

// HubFiles returns the files of a repository by their names.
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
