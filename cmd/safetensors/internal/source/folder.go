package source

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/internal/variant"
)

func isSafetensors(name string) bool { return strings.HasSuffix(name, ".safetensors") }

// isTorch reports whether a file is one of torch.save, judging by its name.
func isTorch(name string) bool { return format.ByName(name) == format.Torch }

// openFolder opens the checkpoint in a folder, or that of an index. It leaves out entries of
// distributed checkpoints that are not tensors, such as the step.
func (o *Opener) openFolder(c *Checkpoint, fsys *storage.FS, name string) (*safetensors.File, error) {
	skipped := make(map[string]error)
	var mu sync.Mutex
	f, err := checkpoint.Opener{Key: o.keyOf(c), Variant: o.variantOf(c), Skip: func(name string, why error) {
		mu.Lock()
		defer mu.Unlock()
		skipped[name] = why
	}}.OpenFS(fsys, name)
	if err != nil {
		return nil, err
	}
	// Open may have read config.json for the name of a library. It has no weights.
	c.Files = slices.DeleteFunc(slices.Clone(fsys.Opened()), func(f storage.File) bool { return f.Name == "config.json" })
	if name == "." {
		if err := o.noteOthers(c, fsys); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	c.Joined = isJoined(c.Files)
	c.Refused = skipped
	o.noteUnlisted(c, f)
	if c.Joined {
		o.noteObjects(c)
	}
	return f, nil
}

// isModel reports whether a file makes its folder one with a model, judging by its name.
func isModel(name string) bool {
	return isSafetensors(name) || isTorch(name) || storage.IsIndex(name) || storage.IsTorchIndex(name) || name == "model_index.json"
}

// noteOthers notes the safetensors files of a folder that are not part of the model that was opened: the shards of
// another model, such as the one that was quantised, and files with other names. It does not mention variants of
// the model, which --variant selects.
func (o *Opener) noteOthers(c *Checkpoint, fsys *storage.FS) error {
	opened, models := make(map[string]bool), make(map[string]bool)
	indexed := false
	for _, f := range c.Files {
		opened[f.Name] = true
		models[variant.Model(f.Name)] = true
		indexed = indexed || storage.IsIndex(f.Name)
	}
	if !slices.ContainsFunc(c.Files, func(f storage.File) bool { return isSafetensors(f.Name) }) {
		return nil
	}
	entries, err := fsys.Entries()
	var shards, others []string
	how := ""
	for _, e := range entries {
		name := e.Name()
		shard, numbered := variant.ParseShard(name)
		switch {
		case name == format.IndexFile && !indexed && opened[format.ModelFile]:
			how = "; name " + format.IndexFile + " to take them"
		case name == format.IndexFile && !opened[name] && !models[format.Stem]: // the config names the other library
			others = append(others, name)
		case opened[name], !isSafetensors(name), e.IsDir():
		case numbered && shard.Stem == format.Stem && shard.Variant == "" && opened[format.ModelFile] && !indexed:
			shards = append(shards, term.Name(name))
		case numbered && shard.Variant == "" && indexed, !numbered && !models[variant.Model(name)]:
			others = append(others, term.Name(name))
		}
	}
	if n := len(shards); n > 0 {
		o.note("%s: %s is taken, not the %s beside it (from %s on)%s", storage.Shown(c.Name), format.ModelFile, term.Plural(n, "shard"), shards[0], how)
	}
	switch n := len(others); {
	case n == 1:
		o.note("%s: %s is no part of the model and is not read", storage.Shown(c.Name), others[0])
	case n > 1:
		o.note("%s: %d files, such as %s, are no part of the model and are not read", storage.Shown(c.Name), n, others[0])
	}
	return err
}

// noteUnlisted sets the unlisted tensors of a source with an index on this machine, and notes them. Some programs read them
// nonetheless, such as transformers. It reads the headers of the shards once more, because File has only listed tensors.
func (o *Opener) noteUnlisted(c *Checkpoint, f *safetensors.File) {
	isIndex := func(file storage.File) bool { return storage.IsIndex(file.Name) || storage.IsTorchIndex(file.Name) }
	if o.Verb == "check" || !slices.ContainsFunc(c.Files, isIndex) { // check has a finding about them
		return
	}
	listed := make(map[string]bool, f.Len())
	for name := range f.Tensors() {
		listed[name] = true
	}
	for _, file := range c.Files {
		if isIndex(file) || file.Path == "" {
			continue
		}
		shard, err := checkpoint.Opener{Skip: func(string, error) {}}.Open(file.Path)
		if err != nil { // it was readable a moment ago, or has several dicts: then its tensors are unknown
			continue
		}
		for name := range shard.Tensors() {
			if !listed[name] {
				listed[name], c.Unlisted = true, append(c.Unlisted, name)
			}
		}
		shard.Close()
	}
	slices.Sort(c.Unlisted)
	if n := len(c.Unlisted); n > 0 {
		o.note("%s: the index does not list %s of the shards, %s: %s not read", storage.Shown(c.Name), term.Plural(n, "tensor"), variant.List(c.Unlisted, 3, term.Name), term.Either(n, "it is", "they are"))
	}
}

// isJoined reports whether files contain the pieces that ranks have saved, judging by their names.
func isJoined(files []storage.File) bool {
	ranks := 0
	for _, file := range files {
		rank, saved := variant.RankOf(file.Name)
		switch {
		case variant.IsMetadata(file.Name), variant.IsRank(file.Name), saved && rank.Sure:
			return true
		case saved:
			ranks++
		}
	}
	return ranks > 1
}

// noteObjects removes the entries that are not tensors from Refused, and notes them.
func (o *Opener) noteObjects(c *Checkpoint) {
	var objects []string
	for _, name := range slices.Sorted(maps.Keys(c.Refused)) {
		if !errors.Is(c.Refused[name], errors.ErrUnsupported) {
			objects = append(objects, name)
			delete(c.Refused, name)
		}
	}
	text := "entries that are no tensors are left out"
	if slices.ContainsFunc(c.Files, func(f storage.File) bool { return variant.IsMetadata(f.Name) }) {
		text = "Python objects are left out unread, with any tensors in them"
	}
	if len(objects) > 0 {
		o.note("%s: %s: %s", storage.Shown(c.Name), text, variant.List(objects, 5, term.Name))
	}
}

var errNoVariants = errors.New("--variant selects files of a folder, and this is not one")

// Directory returns the files of a source that is a folder of this machine, of a hub or of a
// bucket. It returns nil for any other source.
func (o *Opener) Directory(name string) (fs.FS, error) {
	name, err := localfile.Path(name)
	if err != nil || name == "-" {
		return nil, nil // Open returns the error
	}
	dir := name
	if strings.HasPrefix(name, "hf://") {
		if repo, revision, file, err := storage.SplitHub(name); err == nil {
			if cached, err := hub.CacheDir(repo, revision); err == nil {
				dir = filepath.Join(cached, filepath.FromSlash(file))
			}
		}
	}
	if info, err := os.Stat(dir); err == nil && !storage.IsURL(dir) {
		if !info.IsDir() {
			return nil, nil
		}
		return o.Session.Local(dir).WithLinks(), nil
	}
	if !storage.IsURL(name) || strings.HasPrefix(name, "http") {
		return nil, nil
	}
	fsys, base, err := o.Away(name)
	if err != nil || base != "." {
		return nil, err
	}
	return fsys, nil
}

// A Layout describes how files hold a checkpoint.
type Layout struct {
	Shards map[string]string // maps each tensor to its file
	Index  string            // name of the index; "" if there is none

	// Files are the shards and the index. Plain reports whether they are safetensors files that can
	// be copied unchanged: opening a folder with files of these names finds them.
	Files []storage.File
	Plain bool
}

// layoutOf returns the layout of a checkpoint that was opened under name, from the files in opened.
// It returns nil if the names of the shards are unknown.
func layoutOf(f *safetensors.File, name string, opened []storage.File) *Layout {
	l := &Layout{Shards: make(map[string]string), Plain: true}
	lone := format.ModelFile // name for a file that f.Headers returns without a name
	if len(opened) == 1 {
		lone = opened[0].Name
	}
	shards := make(map[string]bool)
	folded := make(map[string]bool) // lower-case names, for systems that ignore case
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
		default: // the file was opened only as a trial
			continue
		}
		l.Files = append(l.Files, file)
	}
	if missing > 0 {
		return nil
	}
	if l.Index == "" && name != "." || l.Index != "" && shards[format.ModelFile] {
		l.Plain = false // opening the folder would not find the index: its name is unusual, or model.safetensors comes first
	}
	l.Plain = l.Plain && len(folded) == len(shards)
	return l
}
