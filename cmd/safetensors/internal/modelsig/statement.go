package modelsig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://model_signing/signature/v1.0"
)

// A statement is the payload as it is spelled.
type statement struct {
	typ           string
	predicateType string
	subjects      []subject
	predicate     bool // there is one
	resources     []resource
	serialization bool
	method        string
	hash          string
	shardSize     int64
	symlinks      *bool
	ignore        []string
}

type subject struct{ name, sha256 string }

type resource struct{ name, digest, algorithm string }

func (s *statement) decode(payload []byte) error {
	return decode(payload, map[string]field{
		"_type":         value(&s.typ),
		"predicateType": value(&s.predicateType),
		"subject": list(func(d decoder) error {
			var x subject
			err := d.object(map[string]field{
				"name":   value(&x.name),
				"digest": object(map[string]field{"sha256": value(&x.sha256)}),
			})
			s.subjects = append(s.subjects, x)
			return err
		}),
		"predicate": func(d decoder) error {
			s.predicate = true
			return d.object(map[string]field{
				"resources": list(func(d decoder) error {
					var r resource
					err := d.object(map[string]field{
						"name": value(&r.name), "digest": value(&r.digest), "algorithm": value(&r.algorithm),
					})
					s.resources = append(s.resources, r)
					return err
				}),
				"serialization": s.decodeSerialization,
			})
		},
	})
}

func (s *statement) decodeSerialization(d decoder) error {
	s.serialization = true
	return d.object(map[string]field{
		"method":         value(&s.method),
		"hash_type":      value(&s.hash),
		"shard_size":     integer(&s.shardSize),
		"allow_symlinks": func(d decoder) error { s.symlinks = new(bool); return value(s.symlinks)(d) },
		"ignore_paths": list(func(d decoder) error {
			var path string
			err := value(&path)(d)
			s.ignore = append(s.ignore, path)
			return err
		}),
	})
}

// parseStatement returns what a payload says whose signature was found right. Its rules
// are those of sections 5, 6 and 8.3 of the specification.
func parseStatement(payload []byte) (*Manifest, error) {
	s := new(statement)
	if err := s.decode(payload); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	switch {
	case s.typ != statementType:
		return nil, fmt.Errorf("statement of type %.80q, expected %q", s.typ, statementType)
	case s.predicateType != predicateType:
		return nil, fmt.Errorf("predicate type %.80q, expected %q", s.predicateType, predicateType)
	case !s.predicate:
		return nil, errors.New("the statement has no predicate")
	case len(s.subjects) != 1:
		return nil, fmt.Errorf("%d subjects, expected 1", len(s.subjects))
	case s.subjects[0].name == "":
		return nil, errors.New("the subject has no name")
	case !s.serialization:
		return nil, errors.New("the predicate has no serialization")
	case s.method != "files" && s.method != "shards":
		return nil, fmt.Errorf("serialization method %.80q, expected files or shards", s.method)
	case s.method == "shards" && s.shardSize <= 0:
		return nil, fmt.Errorf("shard_size is %d, expected a positive number", s.shardSize)
	case s.method == "files" && s.shardSize != 0:
		return nil, errors.New("shard_size with the method files")
	case s.symlinks == nil:
		return nil, errors.New("the serialization has no allow_symlinks")
	}
	m := &Manifest{
		Model: s.subjects[0].name, Hash: s.hash, ShardSize: s.shardSize,
		AllowSymlinks: *s.symlinks, IgnorePaths: s.ignore,
	}
	if err := m.add(s.resources); err != nil {
		return nil, err
	}
	if root := rootDigest(s.resources); root != s.subjects[0].sha256 {
		return nil, fmt.Errorf("the digest of the subject is %.80q, that of the resources %q", s.subjects[0].sha256, root)
	}
	return m, nil
}

// rootDigest is the sum of the sums, in the order of the resources.
func rootDigest(resources []resource) string {
	h := sha256.New()
	for _, r := range resources {
		sum, _ := hex.DecodeString(r.digest)
		h.Write(sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A piece is a resource: a file, or a shard of one.
type piece struct {
	name       string
	start, end int64
	sum        []byte
}

// add makes files of resources.
func (m *Manifest) add(resources []resource) error {
	if len(resources) == 0 {
		return errors.New("the signature covers no file")
	}
	h, err := NewHash(m.Hash)
	if err != nil {
		return err
	}
	sharded := m.Hash
	if m.ShardSize > 0 {
		sharded = fmt.Sprintf("%s-sharded-%d", m.Hash, m.ShardSize) // as the Python package writes it
	}
	pieces := make([]piece, len(resources))
	for i, r := range resources {
		p := &pieces[i]
		p.name = r.name
		if m.ShardSize > 0 {
			if err := p.cutRange(); err != nil {
				return err
			}
		}
		if !fs.ValidPath(p.name) || strings.ContainsRune(p.name, 0) {
			return fmt.Errorf("resource %.200q is not the clean path of a file in the model", r.name)
		}
		p.sum, err = hex.DecodeString(r.digest)
		switch {
		case r.algorithm != m.Hash && r.algorithm != sharded:
			return fmt.Errorf("resource %.200q: algorithm %.80q, expected %q", r.name, r.algorithm, m.Hash)
		case err != nil, len(p.sum) != h.Size(), r.digest != strings.ToLower(r.digest):
			return fmt.Errorf("resource %.200q: digest %.200q is not that of %s in hexadecimal", r.name, r.digest, m.Hash)
		}
	}
	if err := checkOrder(resources, pieces); err != nil {
		return err
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.start, b.start))
	})
	for _, p := range pieces {
		if err := m.addPiece(p); err != nil {
			return err
		}
	}
	if m.Covers(SingleFile) && len(m.Files) > 1 {
		return fmt.Errorf("resource %q is not the clean path of a file in a model of several", SingleFile)
	}
	return nil
}

// checkOrder accepts the order of the specification, by name, and that of the Python
// package, by the parts of paths and the numbers of ranges. Both find duplicates.
func checkOrder(resources []resource, pieces []piece) error {
	names := make(map[string]bool, len(resources))
	byName, byParts := true, true
	for i, r := range resources {
		if names[r.name] {
			return fmt.Errorf("duplicate resource %.200q", r.name)
		}
		names[r.name] = true
		if i > 0 {
			a, b := pieces[i-1], pieces[i]
			byName = byName && resources[i-1].name < r.name
			byParts = byParts && cmp.Or(slices.Compare(strings.Split(a.name, "/"), strings.Split(b.name, "/")), cmp.Compare(a.start, b.start)) < 0
		}
		if !byName && !byParts {
			return fmt.Errorf("the resources are not sorted: %.200q is out of place", r.name)
		}
	}
	return nil
}

// addPiece adds the next piece in the order of names and ranges. Ranges must follow
// each other and have the size of shards, but for the last one.
func (m *Manifest) addPiece(p piece) error {
	if m.ShardSize == 0 {
		m.Files = append(m.Files, File{Name: p.name, Sums: [][]byte{p.sum}, Size: -1})
		return nil
	}
	if n := len(m.Files); n == 0 || m.Files[n-1].Name != p.name {
		m.Files = append(m.Files, File{Name: p.name})
	}
	f := &m.Files[len(m.Files)-1]
	if p.start != f.Size || f.Size%m.ShardSize != 0 || p.end <= p.start || p.end-p.start > m.ShardSize {
		return fmt.Errorf("resource %.200q: the range %d:%d does not follow %d in shards of %d bytes", p.name, p.start, p.end, f.Size, m.ShardSize)
	}
	f.Size = p.end
	f.Sums = append(f.Sums, p.sum)
	return nil
}

// cutRange splits path:start:end. The path may have colons.
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

// statement returns the payload that says what a manifest says. Files are hashed whole.
func (m *Manifest) statement() ([]byte, error) {
	resources := make([]resource, len(m.Files))
	list := make([]map[string]string, len(m.Files))
	for i, f := range m.Files {
		resources[i] = resource{f.Name, hex.EncodeToString(f.Sums[0]), m.Hash}
		list[i] = map[string]string{"name": f.Name, "digest": resources[i].digest, "algorithm": m.Hash}
	}
	if err := (&Manifest{Hash: m.Hash}).add(resources); err != nil {
		return nil, err // what could not be verified is not signed
	}
	return json.Marshal(map[string]any{
		"_type":         statementType,
		"subject":       []any{map[string]any{"name": m.Model, "digest": map[string]string{"sha256": rootDigest(resources)}}},
		"predicateType": predicateType,
		"predicate": map[string]any{
			"resources": list,
			"serialization": map[string]any{
				"method": "files", "hash_type": m.Hash, "allow_symlinks": m.AllowSymlinks, "ignore_paths": m.IgnorePaths,
			},
		},
	})
}
