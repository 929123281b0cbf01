package modelsig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://model_signing/signature/v1.0"
)

// A statement is the payload of a signature. The order of its fields is the order of the keys in
// the JSON.
type statement struct {
	Type          string     `json:"_type"`
	Predicate     *predicate `json:"predicate"`
	PredicateType string     `json:"predicateType"`
	Subjects      []subject  `json:"subject"`
}

type predicate struct {
	Resources     []resource     `json:"resources"`
	Serialization *serialization `json:"serialization"`
}

type resource struct {
	Algorithm string `json:"algorithm"`
	Digest    string `json:"digest"`
	Name      string `json:"name"`
}

type serialization struct {
	AllowSymlinks *bool    `json:"allow_symlinks"`
	HashType      string   `json:"hash_type"`
	IgnorePaths   []string `json:"ignore_paths"`
	Method        string   `json:"method"`
	ShardSize     float64  `json:"shard_size,omitzero"` // a whole number, which the Python package writes as 100.0
}

type subject struct {
	Digest struct {
		SHA256 string `json:"sha256"`
	} `json:"digest"`
	Name string `json:"name"`
}

// parseStatement parses a payload whose signature has been verified, by the rules of sections 5, 6
// and 8.3 of the specification.
func parseStatement(payload []byte) (*Manifest, error) {
	s := new(statement)
	if err := decode(payload, s); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	switch {
	case s.Type != statementType:
		return nil, fmt.Errorf("statement of type %.80q, expected %q", s.Type, statementType)
	case s.PredicateType != predicateType:
		return nil, fmt.Errorf("predicate type %.80q, expected %q", s.PredicateType, predicateType)
	case s.Predicate == nil:
		return nil, errors.New("the statement has no predicate")
	case len(s.Subjects) != 1:
		return nil, fmt.Errorf("%d subjects, expected 1", len(s.Subjects))
	case s.Subjects[0].Name == "":
		return nil, errors.New("the subject has no name")
	case s.Predicate.Serialization == nil:
		return nil, errors.New("the predicate has no serialization")
	}
	as, resources := s.Predicate.Serialization, s.Predicate.Resources
	switch {
	case as.Method != "files" && as.Method != "shards":
		return nil, fmt.Errorf("serialization method %.80q, expected files or shards", as.Method)
	case as.Method == "shards" && !(as.ShardSize > 0 && as.ShardSize <= 1<<53 && as.ShardSize == math.Trunc(as.ShardSize)):
		return nil, fmt.Errorf("shard_size is %v, expected a positive whole number", as.ShardSize)
	case as.Method == "files" && as.ShardSize != 0:
		return nil, errors.New("shard_size with the method files")
	case as.AllowSymlinks == nil:
		return nil, errors.New("the serialization has no allow_symlinks")
	}
	m := &Manifest{
		Model: s.Subjects[0].Name, Hash: as.HashType, ShardSize: int64(as.ShardSize),
		AllowSymlinks: *as.AllowSymlinks, IgnorePaths: as.IgnorePaths,
	}
	root, err := m.add(resources)
	if err != nil {
		return nil, err
	}
	if digest := s.Subjects[0].Digest.SHA256; root != digest {
		return nil, fmt.Errorf("the digest of the subject is %.80q, that of the resources %q", digest, root)
	}
	return m, nil
}

// A piece is a parsed resource: a whole file, or a range of a file.
type piece struct {
	name       string
	start, end int64
	sum        []byte
}

// add adds the files that resources describe. root is the SHA-256 sum over the sums of all
// resources, in their order.
func (m *Manifest) add(resources []resource) (root string, err error) {
	if len(resources) == 0 {
		return "", errors.New("the signature covers no file")
	}
	h, err := NewHash(m.Hash)
	if err != nil {
		return "", err
	}
	sharded := m.Hash
	if m.ShardSize > 0 {
		sharded = fmt.Sprintf("%s-sharded-%d", m.Hash, m.ShardSize) // the name that the Python package writes
	}
	pieces, sums := make([]piece, len(resources)), sha256.New()
	for i, r := range resources {
		p := &pieces[i]
		p.name = r.Name
		if m.ShardSize > 0 {
			if err := p.cutRange(); err != nil {
				return "", err
			}
		}
		if !fs.ValidPath(p.name) || strings.ContainsRune(p.name, 0) {
			return "", fmt.Errorf("resource %.200q is not the clean path of a file in the model", r.Name)
		}
		p.sum, err = hex.DecodeString(r.Digest)
		switch {
		case r.Algorithm != m.Hash && r.Algorithm != sharded:
			return "", fmt.Errorf("resource %.200q: algorithm %.80q, expected %q", r.Name, r.Algorithm, m.Hash)
		case err != nil, len(p.sum) != h.Size(), r.Digest != strings.ToLower(r.Digest):
			return "", fmt.Errorf("resource %.200q: digest %.200q is not that of %s in hexadecimal", r.Name, r.Digest, m.Hash)
		}
		sums.Write(p.sum)
	}
	if err := checkOrder(resources, pieces); err != nil {
		return "", err
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.start, b.start))
	})
	if err := m.join(pieces); err != nil {
		return "", err
	}
	if m.Covers(SingleFile) && len(m.Files) > 1 {
		return "", fmt.Errorf("resource %q is not the clean path of a file in a model of several", SingleFile)
	}
	return hex.EncodeToString(sums.Sum(nil)), nil
}

// checkOrder accepts the order of the specification, which sorts by name, and the order of the
// Python package, which sorts by the parts of paths and the numbers of ranges. Duplicates are an
// error.
func checkOrder(resources []resource, pieces []piece) error {
	byName, byParts := true, true
	for i, r := range resources[1:] {
		before, a, b := resources[i], pieces[i], pieces[i+1]
		byName = byName && before.Name < r.Name
		byParts = byParts && cmp.Or(slices.Compare(strings.Split(a.name, "/"), strings.Split(b.name, "/")), cmp.Compare(a.start, b.start)) < 0
		switch {
		case before.Name == r.Name:
			return fmt.Errorf("duplicate resource %.200q", r.Name)
		case !byName && !byParts:
			return fmt.Errorf("the resources are not sorted: %.200q is out of place", r.Name)
		}
	}
	return nil
}

// join joins sorted pieces into files, which it adds to m.Files. The ranges of a file must be
// adjacent, and all but the last must have the size of a shard.
func (m *Manifest) join(pieces []piece) error {
	end := int64(0)
	for i, p := range pieces {
		if i == 0 || p.name != pieces[i-1].name {
			m.Files, end = append(m.Files, File{Name: p.name}), 0
		}
		size := p.end - p.start
		if m.ShardSize > 0 && (p.start != end || end%m.ShardSize != 0 || size <= 0 || size > m.ShardSize) {
			return fmt.Errorf("resource %.200q: the range %d:%d does not follow %d in shards of %d bytes", p.name, p.start, p.end, end, m.ShardSize)
		}
		f := &m.Files[len(m.Files)-1]
		f.Sums, end = append(f.Sums, p.sum), p.end
	}
	return nil
}

// cutRange splits a name PATH:START:END. The path may contain colons.
func (p *piece) cutRange() error {
	parts := strings.Split(p.name, ":")
	if n := len(parts); n >= 3 {
		start, err1 := strconv.ParseUint(parts[n-2], 10, 63)
		end, err2 := strconv.ParseUint(parts[n-1], 10, 63)
		if err1 == nil && err2 == nil {
			p.name, p.start, p.end = strings.Join(parts[:n-2], ":"), int64(start), int64(end)
			return nil
		}
	}
	return fmt.Errorf("resource %.200q is not PATH:START:END, as a shard is named", p.name)
}

// statement returns the payload for a manifest whose files are hashed as a whole.
func (m *Manifest) statement() ([]byte, error) {
	resources := make([]resource, len(m.Files))
	for i, f := range m.Files {
		resources[i] = resource{m.Hash, hex.EncodeToString(f.Sums[0]), f.Name}
	}
	root, err := (&Manifest{Hash: m.Hash}).add(resources)
	if err != nil {
		return nil, err // such a manifest could not be verified
	}
	signed := subject{Name: m.Model}
	signed.Digest.SHA256 = root
	return json.Marshal(statement{
		Type: statementType, PredicateType: predicateType, Subjects: []subject{signed},
		Predicate: &predicate{resources, &serialization{AllowSymlinks: &m.AllowSymlinks, HashType: m.Hash, IgnorePaths: m.IgnorePaths, Method: "files"}},
	})
}
