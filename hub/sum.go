package hub

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"

	"github.com/gosafetensors/safetensors"
)

// A listedSum compares the content of a file with the sum that the hub lists for it: the
// SHA-256 of a file in LFS, or the name that Git gives the content of any other file. Git's
// name is a SHA-1, or a SHA-256 in repositories of the newer kind.
type listedSum struct {
	kind   string    // name of the sum in errors
	listed []byte    // sum that the hub lists
	hash   hash.Hash // hash of Git's header, if the sum is Git's, and of the content that was read
	read   int64     // number of bytes that were read
	size   int64     // size of the content in bytes, or -1 if neither the list nor the server states it
	done   bool      // whether the sums were compared and are equal
}

// newListedSum returns the listedSum of a file with size bytes. It returns nil if the hub lists no sum, or if the
// sum is Git's, which depends on the size, and the size is not known.
func newListedSum(info FileInfo, size int64) (*listedSum, error) {
	text, git := cmp.Or(info.SHA256, info.BlobID), info.SHA256 == ""
	if text == "" || git && size < 0 {
		return nil, nil
	}
	listed, err := hex.DecodeString(text)
	s := &listedSum{kind: "SHA-256", listed: listed, hash: sha256.New(), size: size}
	if git {
		s.kind = "Git's SHA-256"
	}
	switch {
	case err == nil && len(listed) == sha256.Size:
	case err == nil && len(listed) == sha1.Size && git:
		s.kind, s.hash = "Git's SHA-1", sha1.New()
	default:
		return nil, fmt.Errorf("the hub lists the sum %.200q, which is neither a SHA-256 nor Git's", text)
	}
	if git {
		fmt.Fprintf(s.hash, "blob %d\x00", size)
	}
	return s, nil
}

// add hashes the next bytes of the content. At the end of the content, it compares the sums. The end is reached if
// end is true, or once as many bytes were read as the file has.
func (s *listedSum) add(p []byte, end bool) error {
	if s == nil || s.done {
		return nil
	}
	s.hash.Write(p)
	s.read += int64(len(p))
	if !end && s.read != s.size {
		return nil
	}
	if sum := s.hash.Sum(nil); !bytes.Equal(sum, s.listed) {
		return fmt.Errorf("it does not have the sum that the hub gives: %s is %x, not %x", s.kind, sum, s.listed)
	}
	s.done = true
	return nil
}

// A file combines the content of a file with its entry in the list.
type file struct {
	fs.File
	safetensors.RangeReader
	info fs.FileInfo
	name string
	sum  *listedSum // comparison of the content, or nil
	err  error      // error of sum, which every later Read returns
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read compares the content with the listed sum when it has been read to its end.
func (f *file) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.File.Read(p)
	if differs := f.sum.add(p[:n], err == io.EOF); differs != nil {
		f.err = &fs.PathError{Op: "read", Path: f.name, Err: differs}
		return 0, f.err // returns none of the bytes, because io.ReadFull ignores an error that comes with the last of them
	}
	return n, err
}
