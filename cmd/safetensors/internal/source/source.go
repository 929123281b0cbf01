// Package source opens the checkpoints that a command reads: in files and folders, on hubs, on web
// servers, in buckets and from standard input.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// An Opener opens the sources of one run of the command.
type Opener struct {
	storage.Session

	// Stdin is the reader for the name "-".
	Stdin io.Reader

	// Key selects the tensors of PyTorch files that contain several dicts of tensors.
	Key string

	// KeyOfSome accepts sources without dicts although Key is set, for a verb that calls CheckKey
	// with all its sources. It also accepts files whose tensors are at the top level.
	KeyOfSome bool

	// Variant, unless "", selects the files of a variant in folders, such as fp16. IgnoresVariant reports exceptions.
	Variant string

	// Local refuses sources that are not files of this machine. A repository of the hub is allowed
	// if it is in the cache.
	Local bool

	// Verb is the verb of the command line, which the advice in errors repeats. It defaults to ls.
	Verb string

	// Note is called with a sentence about each entry that Open leaves out of a source. It may be
	// nil.
	Note func(text string)

	plain sync.Map // names of the sources for which IgnoresVariant returns true
}

// Open opens a source. It calls Note for all entries that are left out.
func (o *Opener) Open(name string) (*Checkpoint, error) {
	c, err := o.openOne(name)
	if err == nil {
		o.noteLeftOut(c, slices.Sorted(maps.Keys(c.Refused)))
	}
	return c, err
}

// OpenFiles opens a source whose files are read as a whole, such as for their sums: no entry of them is left out.
func (o *Opener) OpenFiles(name string) (*Checkpoint, error) { return o.openOne(name) }

// OpenRead opens a source for a verdict. It calls Note for the objects that are left out. Tensors
// that cannot be read are left to the caller: Checkpoint.Unread returns them.
func (o *Opener) OpenRead(name string) (*Checkpoint, error) {
	c, err := o.openOne(name)
	if err == nil {
		unread := c.Unread()
		o.noteLeftOut(c, slices.DeleteFunc(slices.Sorted(maps.Keys(c.Refused)), func(name string) bool {
			_, is := slices.BinarySearch(unread, name)
			return is
		}))
	}
	return c, err
}

// noteLeftOut calls Note with the entries of a source that are left out, and the reasons.
func (o *Opener) noteLeftOut(c *Checkpoint, entries []string) {
	const most = 10
	for i, entry := range entries {
		if i == most {
			verb := "are"
			if len(entries) == most+1 {
				verb = "is"
			}
			o.note("%s: %s %s left out", storage.Shown(c.Name), english.Plural(len(entries)-most, "more entry", "more entries"), verb)
			break
		}
		o.note("%s: %s is left out: %v", storage.Shown(c.Name), term.Name(entry), c.Refused[entry])
	}
}

func (o *Opener) note(format string, args ...any) {
	if o.Note != nil {
		o.Note(fmt.Sprintf(format, args...))
	}
}

// openOne opens a source. Once the context is done, it waits only for a moment longer, because the
// interpreter of a pickle may compute for seconds without reading. The goroutine then continues
// until it ends by itself.
func (o *Opener) openOne(name string) (*Checkpoint, error) {
	type result struct {
		c   *Checkpoint
		err error
	}
	done := make(chan result, 1)
	go func() {
		c := &Checkpoint{Name: name}
		err := o.open(c, name)
		if o.KeyOfSome && name != "-" && errors.As(err, new(variant.TopLevel)) {
			c.Close()
			c = &Checkpoint{Name: name, keyless: true}
			err = o.open(c, name)
		}
		if err != nil {
			c.Close()
			done <- result{nil, err}
			return
		}
		done <- result{c, nil}
	}()
	r := result{nil, nil}
	select {
	case r = <-done:
	case <-o.Context.Done():
		select {
		case r = <-done: // the usual case: reads fail once the context is done, and open closes the files
		case <-time.After(patience):
			go func() {
				if r := <-done; r.c != nil {
					r.c.Close()
				}
			}()
			r.err = context.Cause(o.Context)
		}
	}
	if r.err != nil {
		return nil, o.Named(name, r.err)
	}
	return r.c, nil
}

// patience is how long openOne waits for a source after the context is done.
const patience = 500 * time.Millisecond

// open opens a source. The form of its name decides how.
func (o *Opener) open(c *Checkpoint, name string) error {
	name, err := localfile.Path(name)
	switch {
	case err != nil:
		return err
	case o.Local && (name == "-" || storage.IsURL(name) && !strings.HasPrefix(name, "hf://")):
		return errNotLocal
	case o.Variant != "" && name == "-":
		return errNoVariants
	case name == "-":
		if err := o.openStream(c, o.Stdin); err != errNoPipe {
			return err
		}
		return errors.New("standard input is a terminal, or a device such as /dev/null: expected a file or a pipe")
	case strings.HasPrefix(name, "hf://"):
		if found, err := o.openCached(c, name); found || err != nil {
			return err
		}
	case !storage.IsURL(name):
		return o.openLocal(c, name)
	case hubName(name) != "":
		return fmt.Errorf("a page for browsers; the model on it is %s", hubName(name))
	}
	fsys, file, err := o.Away(name)
	if err != nil {
		return err
	}
	return o.openIn(c, fsys, file)
}

// openCached opens a repository of the hub from the cache of the Python tools. found is false if
// the cache does not have it.
func (o *Opener) openCached(c *Checkpoint, name string) (found bool, err error) {
	repo, revision, file, err := storage.SplitHub(name)
	if err != nil {
		return false, err
	}
	dir, err := hub.CacheDir(repo, revision)
	if err == nil {
		c.pins = []storage.Pin{{Name: path.Join(repo, file), Tag: filepath.Base(dir)}} // the name of the directory is the commit
		at := filepath.Join(dir, filepath.FromSlash(file))
		err = o.openLocal(c, at)
		if err == nil && o.variantOf(c) == "" && c.Layout != nil {
			o.noteVariant(c)
		}
		if err == nil && !o.Local && c.Folder != nil {
			if info, err := os.Stat(at); err == nil && !info.IsDir() {
				file = path.Dir(file)
			}
			c.Folder.CompleteFrom(repo, filepath.Base(dir), file)
		}
	}
	// fs.ErrNotExist means that the cache does not have the repository, or not all of the files that are needed.
	if !errors.Is(err, fs.ErrNotExist) {
		return true, err
	}
	if o.Local {
		return false, errNotLocal
	}
	return false, nil
}

// noteVariant calls Note if the cache has a variant but not the model: diffusers downloads only the
// files that it needs.
func (o *Opener) noteVariant(c *Checkpoint) {
	if file, _ := c.VariantFile(); file != "" {
		o.note("%s: the cache has only %s", storage.Shown(c.Name), term.Name(file))
	}
}

// openIn opens a file or an index in a folder of any kind, or the folder itself if name is ".".
func (o *Opener) openIn(c *Checkpoint, fsys *storage.FS, name string) error {
	if fsys.Commit != nil {
		c.pins = []storage.Pin{*fsys.Commit}
	}
	several := name == "." || strings.HasSuffix(name, ".index.json") || storage.IsIndex(name) || storage.IsTorchIndex(name)
	c.Folder = fsys.Folder(several)
	switch {
	case o.Variant != "" && name != ".":
		return errNoVariants
	case !several:
		return o.openFile(c, fsys, name)
	}
	f, err := o.openFolder(c, fsys, name)
	if err != nil && name == "." && o.variantOf(c) == "" && !storage.IsFault(err) {
		err = orFiles(cmp.Or(o.Verb, "ls"), c.Name, fsys, err)
	}
	if err != nil {
		return howToName(cmp.Or(o.Verb, "ls"), c.Name, func(begin, end string) bool { return canJoin(fsys, begin, end) }, err)
	}
	c.take(f)
	c.Metadata = variant.WithoutSharding(c.Metadata)
	if !c.Joined {
		c.Layout = layoutOf(f, name, c.Files)
	}
	switch {
	case c.hasDicts():
		return nil
	case c.Joined:
		return o.checkKey("this is a distributed checkpoint")
	}
	return o.checkKey("these are safetensors files")
}

// openFile opens one file of any format.
func (o *Opener) openFile(c *Checkpoint, fsys *storage.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, f.Close)
	c.Files = fsys.Opened()
	size := c.Files[0].Size
	if err = o.openReader(c, f.(io.ReaderAt), size, name); err != nil {
		if errors.As(err, new(*safetensors.FormatError)) && format.IsJSON(f.(io.ReaderAt), size, name) {
			return jsonFile(cmp.Or(o.Verb, "ls"), c.Name, fsys)
		}
		return err
	}
	return nil
}

var errNotLocal = errors.New("is not a file of this machine")

// openReader opens a file of any format.
func (o *Opener) openReader(c *Checkpoint, r io.ReaderAt, size int64, name string) error {
	is, err := format.Of(r, size, name)
	if err != nil {
		return err
	}
	c.Format = is
	if c.Format.Open == nil {
		f, err := safetensors.NewFile(r, size)
		if err != nil && strings.HasSuffix(name, ".distcp") {
			return errors.New("a file of a distributed checkpoint; name the folder that it is in")
		}
		if err != nil {
			return err
		}
		c.take(f)
		return o.checkKey("this is a " + is.Name)
	}
	read, err := c.Format.Open(r, size, o.keyOf(c))
	if err != nil {
		return wrongKind(c.Format, r, size, err)
	}
	c.Contents = *read
	c.Order = slices.Sorted(maps.Keys(c.Tensors))
	if c.hasDicts() {
		return nil
	}
	return o.checkKey("this is a " + is.Name)
}

// wrongKind returns the error of opening a file that has the name of a format, but not its content.
// Package safetensors recognizes Git LFS pointers, pages of HTML and files of other programs.
func wrongKind(f *format.Format, r io.ReaderAt, size int64, err error) error {
	var broken *safetensors.FormatError
	if _, other := safetensors.NewFile(r, size); f.Recognizes(r, size) || !errors.As(other, &broken) {
		return err
	}
	kind, _, recognized := strings.Cut(broken.Reason, ", not a safetensors file")
	if !recognized || strings.HasSuffix(kind, "zip archive") || strings.HasSuffix(kind, "pickle") { // the format may be one of these
		return err
	}
	if f == format.Torch && strings.HasSuffix(kind, "tar archive") { // err says that PyTorch wrote it, and what to do
		return err
	}
	return &kindError{fmt.Sprintf("not a %s: %s", f.Name, kind), broken}
}

// A kindError is the error for a file whose content is of another kind than its name indicates.
type kindError struct {
	text   string
	broken *safetensors.FormatError
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() error { return e.broken }

// OpenAll opens several sources as one. It is an error if two sources have a tensor of the same
// name. The metadata is merged; for a key with two values, the first counts. The caller must handle
// Refused.
func (o *Opener) OpenAll(names []string) (*Checkpoint, error) {
	if len(names) == 1 {
		return o.openOne(names[0])
	}
	all := &Checkpoint{Name: strings.Join(names, " ")}
	all.Tensors, all.Refused = make(map[string]safetensors.Tensor), make(map[string]error)
	from := make(map[string]string)
	o.KeyOfSome = true
	for _, name := range names {
		c, err := o.openOne(name)
		if err != nil {
			all.Close()
			return nil, err
		}
		all.closers = append(all.closers, c.Close)
		all.parts = append(all.parts, c)
		for _, tensor := range c.Order {
			if other, ok := from[tensor]; ok {
				all.Close()
				if other == name {
					return nil, fmt.Errorf("%s is named twice", storage.Shown(name))
				}
				advice := ""
				if strings.HasSuffix(name, ".index.json") || strings.HasSuffix(other, ".index.json") {
					advice = "; an index stands for its shards, so name the index or the shards"
				}
				return nil, fmt.Errorf("tensor %q is in %s and in %s%s", tensor, storage.Shown(other), storage.Shown(name), advice)
			}
			from[tensor] = name
			all.Tensors[tensor] = c.Tensors[tensor]
			all.Order = append(all.Order, tensor)
		}
		maps.Copy(all.Refused, c.Refused)
		if merged := variant.WithoutSharding(maps.Clone(c.Metadata)); len(merged) > 0 {
			maps.Copy(merged, all.Metadata)
			all.Metadata = merged
		}
	}
	if err := o.CheckKey(all); err != nil {
		all.Close()
		return nil, err
	}
	return all, nil
}
