// Package modelsig reads and writes signatures of models in the format of OpenSSF Model
// Signing 1.0: a Sigstore bundle that holds a DSSE envelope, in it an in-toto statement,
// and in that the sums of the files (github.com/ossf/model-signing-spec). It knows keys
// and certificates, not Sigstore's keyless method. It opens no file: a name in a
// signature is only ever compared with the names of files that were found.
package modelsig

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"strings"

	"golang.org/x/crypto/blake2b"
)

// MaxSize is the size of the largest signature that is read. It has room for the sums
// of 200,000 files.
const MaxSize = 64 << 20

// A Manifest is what a signature says about a model.
type Manifest struct {
	Model         string // the name of the model when it was signed; proves nothing
	Hash          string // "sha256" or "blake2b"
	ShardSize     int64  // files are hashed in pieces of this size; 0: whole
	AllowSymlinks bool   // links were followed
	IgnorePaths   []string
	Files         []File // sorted by name, without duplicates
}

// A File is a file of a signed model.
type File struct {
	Name string // relative to the model, with slashes, clean: as fs.ValidPath asks for

	// Sums has the sum of the file, or those of its shards.
	Sums [][]byte
}

// SingleFile is the name that the Python package gives a model of one file.
const SingleFile = "."

// DefaultIgnorePaths are not signed: the files of git at the top of a model.
var DefaultIgnorePaths = []string{".git", ".gitattributes", ".github", ".gitignore"}

// NewHash returns the hash of that name.
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

// Ignored reports whether a file is not meant to be signed. Entries name a file or a
// directory and all below it, from the top of the model. Those that name nothing in a
// model, such as paths of the signer's machine, and the model itself, match nothing.
func Ignored(name string, paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool {
		return name == path || path != "" && strings.HasPrefix(name, path+"/")
	})
}

// Find returns the place of a file in Files, and whether it is signed.
func (m *Manifest) Find(name string) (int, bool) {
	return slices.BinarySearchFunc(m.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
}

// Covers reports whether a file is signed, or one below it.
func (m *Manifest) Covers(name string) bool {
	_, found := m.Find(name)
	below, _ := m.Find(name + "/")
	return found || below < len(m.Files) && strings.HasPrefix(m.Files[below].Name, name+"/")
}
