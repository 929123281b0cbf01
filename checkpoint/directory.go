package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A checker judges a directory, which is its root, and the directories below it. Names of files are relative to
// the root.
type checker struct {
	in       osfile.Tree
	root     string
	findings []Finding
	dirs     int                // number of directories that were judged
	weights  bool               // whether one of these directories has weights
	claimed  map[string]bool    // shards that indexes name
	lists    map[string]listing // cached listings by directory

	// These are about the directory that is being judged.
	seen  map[string]bool  // files whose headers were read, or that must not be opened
	heads map[string]*head // headers by file
}

// path returns the name in the file system for a name relative to the root.
func (c *checker) path(name string) string { return c.in.Join(c.root, name) }

// list returns the listing of a directory. It caches listings, because in a bucket each costs a request.
func (c *checker) list(dir string) (listing, error) {
	if l, known := c.lists[dir]; known {
		return l, nil
	}
	l, err := list(c.in, c.path(dir))
	if err == nil {
		c.lists[dir] = l
	}
	return l, err
}

// note adds a finding. tensor may be "".
func (c *checker) note(rule Rule, tensor, text string, files ...string) {
	c.findings = append(c.findings, Finding{Rule: rule, Files: files, Tensor: tensor, Text: text})
}

// unreadable notes a file that cannot be read as the format that its name indicates, or that is a link to nothing.
func (c *checker) unreadable(name string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		c.note(Missing, "", fmt.Sprintf("%s is not there: it is a link to nothing, or was removed meanwhile", quoted(name)), name)
		return
	}
	if link := (*linkError)(nil); errors.As(err, &link) {
		c.note(Unreadable, "", fmt.Sprintf("%s %s", quoted(name), link), name)
		return
	}
	c.note(Unreadable, "", fmt.Sprintf("%s cannot be read: %s", quoted(name), cut(bare(err).Error())), name)
}

// A directory is a directory that is being judged. Names of its files are relative to it, but the checker's heads
// and findings have names relative to the root.
type directory struct {
	*checker
	dir string
	listing
	sets  []*set
	first int // number of findings about other directories, which come first
}

// incomplete reports whether files of the directory are missing or unreadable. Then a tensor that the other
// files lack may be in one of these, and is not considered missing.
func (d *directory) incomplete() bool {
	return slices.ContainsFunc(d.findings[d.first:], func(f Finding) bool { return f.Rule == Missing || f.Rule == Unreadable })
}

// at returns the name of a file of the directory relative to the root.
func (d *directory) at(name string) string { return path.Join(d.dir, name) }

// main returns the set that the config describes: the one without a variant, or otherwise the only variant. It returns
// nil if there is none.
func (d *directory) main() *set {
	var best *set
	variants := 0
	for _, s := range d.sets {
		known := s.stem == "model" || s.stem == "pytorch_model" || s.stem == "diffusion_pytorch_model"
		if !known || len(s.where) == 0 {
			continue
		}
		if s.variant != "" {
			variants++
		}
		if best == nil || s.variant == "" && best.variant != "" || s.variant == "" && best.torch {
			best = s
		}
	}
	if best != nil && best.variant != "" && variants > 1 {
		return nil
	}
	return best
}

// fileOf returns the file of a set that contains a tensor, or the first file if none does.
func (d *directory) fileOf(s *set, tensor string) string {
	if file := s.where[tensor]; file != "" {
		return file
	}
	first := ""
	for _, file := range s.where {
		if first == "" || file < first {
			first = file
		}
	}
	return first
}

// info returns the dtype and the shape of a tensor of a set, and whether the set has it.
func (d *directory) info(s *set, tensor string) (info, bool) {
	file := s.where[tensor]
	if file == "" {
		return info{}, false
	}
	i, found := d.heads[file].tensors[tensor]
	return i, found
}

// sortedNames returns the names of the tensors.
func sortedNames(p place) []string {
	names := make([]string, 0, len(p))
	for name := range p {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// bare removes the name of a file from an error, for callers that name the file themselves.
func bare(err error) error {
	err = prefix.Strip(err)
	for {
		at, ok := err.(*fs.PathError)
		if !ok {
			return err
		}
		err = at.Err
	}
}

// cut shortens a text for people to 400 bytes, and replaces control characters by blanks.
func cut(text string) string {
	const most = 400
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// An info is the dtype and the shape of a tensor, as its header lists them.
type info struct {
	dtype safetensors.DType
	shape []int
}

func (i info) String() string { return i.dtype.String() + " " + shapetext.Of(i.shape) }

// A head lists the tensors of a file: from its header, or from the pickle in a file that torch.save wrote.
type head struct {
	tensors  map[string]info
	metadata map[string]string
	refused  map[string]bool // names of entries of a file of torch.save that safetensors cannot hold
}

// A place maps the name of each tensor of a checkpoint to the file that holds it.
type place map[string]string

// A set holds the files that belong to one checkpoint, judging by their names: a single file, an index and shards
// with the same stem, variant and format.
type set struct {
	stem, variant string
	torch         bool // whether torch.save wrote the files

	single string                     // name of the single file, or ""
	index  string                     // name of the index, or ""
	shards map[variant.Shard][]string // sorted names of shards, by the save to which they belong: see variant.Shard.Set

	listed []string // shards that the index names; nil if there is no index, or if it cannot be read
	lost   place    // tensors that the index places in shards that are not there, and these shards
	where  place    // the files from which Open takes the tensors
}

// noteConfig notes that config.json contradicts a tensor of a set. text completes "config.json says …". tensor may be "".
func (d *directory) noteConfig(s *set, tensor, text string) {
	d.note(Config, tensor, fmt.Sprintf("%s says %s", quoted(d.at(configFile)), text), d.fileOf(s, tensor), d.at(configFile))
}
