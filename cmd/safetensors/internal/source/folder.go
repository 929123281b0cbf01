package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/torch"
)

// The files by which folders of PyTorch are told apart.
var (
	// rankFile matches those of the ranks of a job, by HuggingFaceStorageWriter.
	rankFile = regexp.MustCompile(`^shard-\d{5,}-.+\.safetensors$`)

	// itemFile matches those of the ranks of torchtitan's package torch_checkpointing.
	itemFile = regexp.MustCompile(`^.+_\d+\.(safetensors|pt)$`)
)

const itemMetadata = "metadata.pkl"

func isSafetensors(name string) bool { return strings.HasSuffix(name, ".safetensors") }

// isTorch reports whether a file is one of torch.save, by its name.
func isTorch(name string) bool { return format.ByName(name) == format.Torch }

// openTorch opens a folder without safetensors, or an index, of files of torch.save.
func (o *Opener) openTorch(c *Checkpoint, fsys fs.FS, name string) (*safetensors.File, error) {
	c.Refused = make(map[string]error)
	return torch.Opener{Key: o.Key, Skip: func(name string, why error) { c.Refused[name] = why }}.OpenFS(fsys, name)
}

// openFolder opens what a folder holds: a distributed checkpoint, or else what package
// safetensors finds there.
func (o *Opener) openFolder(c *Checkpoint, fsys fs.FS, name string) (*safetensors.File, error) {
	if isTorch(name) || storage.IsTorchIndex(name) {
		return o.openTorch(c, fsys, name)
	}
	entries, err := fs.ReadDir(fsys, name)
	if err != nil {
		return safetensors.OpenFS(fsys, name) // an index, or it says what is wrong
	}
	has := func(match func(string) bool) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return match(e.Name()) })
	}
	is := func(want string) func(string) bool { return func(name string) bool { return name == want } }
	switch {
	case has(storage.IsIndex):
	case has(is(".metadata")):
		c.Joined = true
		return o.openDistcp(c, fsys, name)
	case has(is(itemMetadata)) && has(itemFile.MatchString):
		return nil, &fs.PathError{Op: "open", Path: path.Clean(name), Err: errors.New("is what ranks saved with the package torch_checkpointing: " +
			"where their tensors belong is in " + itemMetadata + " only, which is not read; open the folder above it if that has the whole model")}
	case has(rankFile.MatchString):
		c.Joined = true
		return dcp.OpenFS(fsys, name)
	case !has(isSafetensors) && has(isTorch):
		return o.openTorch(c, fsys, name)
	}
	return safetensors.OpenFS(fsys, name)
}

// openDistcp opens a checkpoint that torch.distributed.checkpoint saves by default. Its
// entries that are no tensors, such as the step, are left out.
func (o *Opener) openDistcp(c *Checkpoint, fsys fs.FS, name string) (*safetensors.File, error) {
	c.Refused = make(map[string]error)
	var objects []string
	f, err := dcp.Opener{Skip: func(name string, why error) {
		if errors.Is(why, errors.ErrUnsupported) {
			c.Refused[name] = why
			return
		}
		objects = append(objects, term.Name(name))
	}}.OpenFS(fsys, name)
	if err != nil {
		return nil, err
	}
	const most = 5
	if n := len(objects); n > most {
		objects = append(objects[:most], fmt.Sprintf("%d more", n-most))
	}
	if len(objects) > 0 {
		o.note("%s: entries that are no tensors are left out: %s", storage.Shown(c.Name), strings.Join(objects, ", "))
	}
	return f, nil
}

var errNoVariants = errors.New("a variant is selected in a folder, and this is none")

// A variantFS lists only the files of one variant in a folder.
type variantFS struct {
	*storage.FS
	entries []fs.DirEntry
}

func (v variantFS) ReadDir(string) ([]fs.DirEntry, error) { return v.entries, nil }

// filesIn returns a file system with the files of Variant only, if it is set:
// x.fp16.safetensors, x.fp16-00001-of-00002.safetensors, x.safetensors.index.fp16.json.
func (o *Opener) filesIn(fsys *storage.FS) (fs.FS, error) {
	if o.Variant == "" {
		return fsys, nil
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		return !strings.Contains(name, "."+o.Variant+".") && !strings.Contains(name, "."+o.Variant+"-")
	})
	if len(entries) == 0 {
		return nil, fmt.Errorf("no file of the variant %s in it: %w", term.Name(o.Variant), fs.ErrNotExist)
	}
	return variantFS{fsys, entries}, nil
}

// A Layout is how files hold a checkpoint.
type Layout struct {
	Shards map[string]string // the file of each tensor
	Index  string            // the name of the index; "" if there is none

	// Files are the shards and the index. Plain says that they are safetensors, which can be
	// copied as they are: whoever opens a folder with these names finds them.
	Files []storage.File
	Plain bool
}

// layoutOf returns the layout of a checkpoint that was opened by a name, from files; nil if the
// names of its shards are not known.
func layoutOf(f *safetensors.File, name string, opened []storage.File) *Layout {
	l := &Layout{Shards: make(map[string]string), Plain: true}
	lone := format.ModelFile // the name of a file that has none
	if len(opened) == 1 {
		lone = opened[0].Name
	}
	shards := make(map[string]bool)
	folded := make(map[string]bool) // as systems do that know no capitals
	for shard, h := range f.Headers() {
		shard = cmp.Or(shard, lone)
		shards[shard] = true
		folded[strings.ToLower(shard)] = true
		for _, t := range h.Tensors {
			l.Shards[t.Name] = shard
		}
		l.Plain = l.Plain && isSafetensors(shard)
	}
	missing := len(shards)
	for _, file := range opened {
		switch {
		case shards[file.Name]:
			missing--
		case storage.IsIndex(file.Name) || storage.IsTorchIndex(file.Name):
			l.Index = file.Name
		default: // opened by way of trial
			continue
		}
		l.Files = append(l.Files, file)
	}
	if missing > 0 {
		return nil
	}
	if l.Index == "" && name != "." || l.Index != "" && shards[format.ModelFile] {
		l.Plain = false // an index of some other name, or one that only its own name opens
	}
	l.Plain = l.Plain && len(folded) == len(shards)
	return l
}
