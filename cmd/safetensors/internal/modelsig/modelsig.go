// Package modelsig reads and writes signatures of models in the format of OpenSSF Model
// Signing 1.0: a Sigstore bundle that holds a DSSE envelope, which holds an in-toto statement,
// which holds the sums of the files (github.com/ossf/model-signing-spec). It supports keys
// and certificates, but not Sigstore's keyless method. It opens no files: a name in a
// signature is only compared with the names of files that were found.
package modelsig

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// MaxSize is the size in bytes of the largest signature that is read. It suffices for the sums of
// 200,000 files.
const MaxSize = 64 << 20

// A Manifest is the content of a signature: the sums of the files of a model.
type Manifest struct {
	Model         string // name of the model when it was signed, which proves nothing
	Hash          string // "sha256" or "blake2b"
	ShardSize     int64  // size in bytes of the pieces that are hashed, or 0 if each file is hashed as a whole
	AllowSymlinks bool   // whether symbolic links were followed
	IgnorePaths   []string
	Files         []File // sorted by name, without duplicates
}

// A File is a file of a signed model.
type File struct {
	Name string // path relative to the model, as fs.ValidPath requires

	// Sums has the sum of the file, or the sums of its pieces.
	Sums [][]byte
}

// SingleFile is the name that the Python package gives to the only file of a model.
const SingleFile = "."

// DefaultIgnorePaths are the paths that are not signed by default: files of git in the directory of
// a model.
var DefaultIgnorePaths = []string{".git", ".gitattributes", ".github", ".gitignore"}

// NewHash returns the hash with this name, "sha256" or "blake2b".
func NewHash(name string) (hash.Hash, error) {
	switch name {
	case "sha256":
		return sha256.New(), nil
	case "blake2b":
		return blake2b.New512(nil)
	case "blake3":
		return nil, fmt.Errorf("hash %q of the format is not supported", name)
	}
	return nil, fmt.Errorf("hash %q is not one of the format: sha256, blake2b, blake3", name)
}

// Ignored reports whether a file is exempt from signing. An entry of paths is the path of a file,
// or of a directory with all files below it, relative to the model. Entries that cannot name a file
// in a model, such as paths on the signer's machine or the model itself, match nothing.
func Ignored(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		return name == path || path != "" && strings.HasPrefix(name, path+"/")
	})
}

// Find returns the index of a file in Files, and whether the file is signed. If it is not, the
// index is where it would be inserted.
func (m *Manifest) Find(name string) (int, bool) {
	return slices.BinarySearchFunc(m.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
}

// Covers reports whether name is a signed file or a directory that contains one.
func (m *Manifest) Covers(name string) bool {
	_, found := m.Find(name)
	below, _ := m.Find(name + "/")
	return found || below < len(m.Files) && strings.HasPrefix(m.Files[below].Name, name+"/")
}
