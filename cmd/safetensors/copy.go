package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/convert"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/quant"
)

// A copyJob describes what cp or merge writes.
type copyJob struct {
	*copyFlags
	src      *source.Checkpoint
	within   string               // folder of src in the folder of several models that is copied, or ""
	sources  []*source.Checkpoint // src and, if the job merges models, the others
	tensors  map[string]safetensors.Tensor
	metadata map[string]string
	origin   map[string]string // maps each tensor, except those that --quantize makes, to its name in src
	aliases  map[string]string // aliases of tensors of src: see aliasesOf
	tied     map[string]string // aliases of tensors of the copy
	lost     []string          // sorted aliases that the copy lacks because it has no metadata of src, or because --quantize has made codes of the tensor
	names    []string          // names in src of the tensors and aliases that the job copies
	renamed  []string          // their names in the copy
	size     int64             // size of all tensors of src in bytes, before they are dequantised
	untied   bool              // whether the copy has a tensor for each alias, because its format has no metadata
	read     int64             // number of bytes of src that the job reads
	config   []byte            // the new config.json; nil if there is none
	side     []string          // files that are written next to the weights: a new config.json, and copies of files of src
	tooLarge []storage.Pin     // files next to the weights that --with-files leaves behind

	aimed        []string    // sorted names of the tensors that --targets selects; nil if they are still to be selected
	quantisation []byte      // the quantization_config that --quantize adds to config
	idle         unquantised // weights that --quantize quantises although programs cannot compute with them
	fused        unquantised // weights that --quantize leaves unchanged because each holds several matrices, such as fused experts
	narrow       unquantised // matrices that it leaves unchanged because groups of the scheme do not divide their columns evenly
	others       unquantised // other tensors of several dimensions that it leaves unchanged, such as convolutions

	// made reports whether the tensors were computed from several models, and are not those of the
	// files of src. widened has the dtypes that tensors had before they were converted to F32 for
	// the computation.
	made    bool
	widened map[string]safetensors.DType
	bases   map[string]safetensors.Tensor // those tensors of src before the computation that it replaces

	parameters int64    // total_parameters of the index: see dest.Set
	resized    resizing // new size of the vocabulary, if an adapter changes it

	layouts map[string]quant.Layout                 // layouts of src, if it is dequantised or converted
	dtypes  map[safetensors.DType]safetensors.DType // maps dtypes to those to which they were converted
	stored  map[safetensors.DType]int               // number of selected tensors of each dtype, before they are converted
	kept    int                                     // number of parts of quantised tensors that --dtype did not convert
	counts  map[string]*convert.Count               // counts of values beyond the range of the new dtype, by converted tensor
}

func (c *command) copy(names []string, name string, f *copyFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := checkDestination(names, name); err != nil {
		return err
	}
	if err := c.checkJSON(name); err != nil {
		return err
	}
	if f.part.IsSet() {
		return c.copyPart(names, name, f)
	}
	result, err := c.copyModels(names, name, f)
	if err != nil {
		return withFolder(err, names, name)
	}
	return c.print(result, func() {})
}

// checkJSON returns an error if both the line of --json and the checkpoint would be written to standard output.
func (c *command) checkJSON(name string) error {
	if c.json && name == "-" {
		return usage("--json prints to standard output, so DST cannot be -")
	}
	return nil
}

// withFolder adds advice to err if one of several sources is a file such as config.json, which has
// no tensors. Then a shell has probably expanded folder/* to all files of a folder, and the advice
// is to copy the folder by its name.
func withFolder(err error, names []string, name string) error {
	config := func(name string) bool {
		return strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".index.json") && !strings.Contains(name, "://")
	}
	if i := slices.IndexFunc(names, config); i >= 0 && len(names) > 1 {
		if file := new(source.JSONFile); errors.As(err, &file) { // its advice names the folder without a DST
			err = fmt.Errorf("%s: %w", storage.Shown(file.Name), file.WithoutAdvice())
		}
		return fmt.Errorf("%w; a folder is copied by its name: cp %s %s --with-files", err, term.FileWord(filepath.Dir(names[i])), storage.Word(name))
	}
	return err
}

// copyOne copies one model.
func (c *command) copyOne(names []string, name string, f *copyFlags) (*copied, error) {
	to, err := c.openTarget(name, f, len(names))
	if err != nil {
		return nil, err
	}
	w, err := c.openCopy(names, f)
	if err != nil {
		return nil, err
	}
	defer w.src.Close()
	w.untied = hasNoMetadata(name)
	if err := w.prepare(); err != nil {
		return nil, err
	}
	return c.writeCopy("cp", w, to)
}

// writeCopy writes a job that a verb has prepared.
func (c *command) writeCopy(verb string, w *copyJob, to copyTarget) (*copied, error) {
	var left []string
	if to.folder == nil { // a file has no place for a new config.json
		w.side = nil
	} else if !w.force && isOnto(w.src.Name, to.name) {
		return nil, onItself(to.name)
	} else {
		var err error
		if left, err = w.leftBehind(to.name); err != nil {
			return nil, err
		}
	}
	to.named = to.whole && dest.KeepsName(to.name) && w.src.Format != nil && w.src.Files[0].Name != "-"
	if to.named {
		var err error
		if to.dst, err = w.aligned(dest.Within(c.ctx, to.name, w.src.Files[0].Name, c.stdout)); err != nil {
			return nil, err
		}
	}
	unlock, err := to.lock(to.named && len(w.side) == 0)
	if err != nil {
		return nil, err
	}
	defer unlock()
	set, err := c.ready(w, to)
	if err != nil {
		return nil, err
	}
	result, err := c.write(verb, w, to, set)
	if err != nil {
		return nil, err
	}
	c.noteLeft(left)
	c.noteTooLarge(w.tooLarge)
	return result, nil
}

// ready returns an error if the job may not replace a file at the destination, which the caller has
// locked. It does not check shards, because Write of their set does: if the job writes shards to a
// folder, ready returns this set, and otherwise nil.
func (c *command) ready(w *copyJob, to copyTarget) (*dest.Set, error) {
	if err := w.sideFilesFree(to.folder); err != nil {
		return nil, err
	}
	if err := c.notPipeline(to); err != nil {
		return nil, err
	}
	if to.shards == nil || to.named {
		return nil, unoccupied(to.dst, w.force)
	}
	if to.whole && w.src.Layout != nil || stemOf(w.src) != format.Stem || w.parameters != 0 || c.variantOf(w.src) != "" {
		set, err := c.shardsOf(w, to.shards)
		if err == nil {
			err = w.checkLibrary(set, to.shards)
		}
		return set, err
	}
	return nil, cmp.Or(w.checkLibrary(&dest.Set{}, to.shards), unoccupied(to.dst, w.force))
}

// checkLibrary returns the error of set.CheckLibrary for a folder that gets the files of w next to the weights.
func (w *copyJob) checkLibrary(set *dest.Set, folder dest.Shared) (err error) {
	var config []byte
	if slices.Contains(w.side, "config.json") {
		config, err = w.sideFile("config.json")
	}
	if err != nil {
		return err
	}
	return set.CheckLibrary(folder, config)
}

// write writes a job for which ready has returned set.
func (c *command) write(verb string, w *copyJob, to copyTarget, set *dest.Set) (_ *copied, err error) {
	var stray []string
	if w.force && !to.named {
		if stray, err = w.strayConfigs(to.folder); err != nil {
			return nil, err
		}
	}
	read := w.read
	if set == nil {
		read = w.readFor(to.dst)
	}
	stop := c.progress(verb, read)
	if set != nil {
		err = set.Write(to.shards)
	} else {
		err = w.save(to.dst, func() error {
			if err := w.unchanged(); err != nil || to.folder != nil && !to.named || storage.IsURL(to.name) {
				return err
			}
			return unoccupied(to.dst, w.force) // another process may have created the file in the meantime
		})
	}
	stop()
	if err != nil {
		return nil, w.withDType(err)
	}
	note := c.noteOf(w)
	w.notes(note)
	c.noteMetadata(to.name, w.src.Name, w.metadata)
	if to.folder == nil || w.config == nil {
		w.noteConfig(note)
	}
	if set == nil { // otherwise Write has already written the files, before the index
		if err := w.copyFiles(to.folder); err != nil {
			return nil, dest.WeightsComplete(err)
		}
	}
	c.noteAdapters(w.src.Sources())
	c.noteStray(to.folder, stray)
	return w.written(to.name), nil
}

// noteOf returns the func for notes about a job. If the job copies one of several models of a
// folder, the notes begin with the folder of the model.
func (c *command) noteOf(w *copyJob) func(text string) {
	if w.within == "" {
		return c.opener.Note
	}
	return func(text string) { c.opener.Note(term.Name(w.within) + ": " + text) }
}

// unchanged returns an error if a file of a source has changed since it was opened: then the tensors
// that were written may be a mixture of two states.
func (w *copyJob) unchanged() error {
	for _, src := range w.sources {
		if err := src.Unchanged(); err != nil {
			return err
		}
	}
	return nil
}

// openCopy opens the sources of a copy, and lists the files that --with-files copies.
func (c *command) openCopy(names []string, f *copyFlags) (*copyJob, error) {
	src, err := c.opener.OpenAll(names)
	if err != nil {
		return nil, err
	}
	w, err := jobOf(src, f)
	if err != nil {
		src.Close()
	}
	return w, err
}

// jobOf returns the job that copies a source. It lists the files that --with-files copies.
func jobOf(src *source.Checkpoint, f *copyFlags) (w *copyJob, err error) {
	w = &copyJob{copyFlags: f, src: src, sources: []*source.Checkpoint{src}}
	if f.withFiles && len(src.Sources()) > 1 {
		return nil, usage("--with-files copies the files of one SRC, and there are several")
	}
	if f.withFiles {
		if w.side, err = src.Folder.SideFiles(); err != nil {
			return nil, fmt.Errorf("--with-files: %s: %w", storage.Shown(src.Name), err)
		}
		w.tooLarge = src.Folder.TooLarge()
		w.side = slices.DeleteFunc(w.side, func(name string) bool { return name == adapterConfig && !hasAdapter(src) })
	}
	return w, nil
}

// prepare sets the tensors and the metadata that the job writes.
func (w *copyJob) prepare() error {
	if err := w.unpack(); err != nil {
		return err
	}
	if err := w.choose(); err != nil {
		return err
	}
	if err := w.take(); err != nil {
		return err
	}
	return w.finish()
}

// A notQuantised is the error of --dequantize if no tensor of the source with this name is quantised.
type notQuantised string

func (e notQuantised) Error() string {
	return fmt.Sprintf("--dequantize: no tensor of %s is quantised", storage.Shown(string(e)))
}

// unpack dequantises the source if --dequantize is set, and sets layouts and size. It is the first
// step of prepare.
func (w *copyJob) unpack() (err error) {
	w.size = w.src.Size()
	switch {
	case w.plain != 0:
		if w.layouts, err = dequantize(w.src); err != nil {
			err = fmt.Errorf("%s: %w", storage.Shown(w.src.Name), err)
		} else if !slices.ContainsFunc(w.src.Order, w.isQuantised) {
			err = notQuantised(w.src.Name)
		}
	case len(w.conversions) > 0:
		w.layouts, err = quantisedParts(w.src)
	}
	return err
}

// finish quantises the tensors that take has set, and sets the config and the metadata. It is the
// last step of prepare.
func (w *copyJob) finish() error {
	if w.withoutMeta {
		w.loseAliases()
	}
	if err := w.countParameters(); err != nil {
		return err
	}
	if w.quantize != "" {
		if err := refuseQuantised(w.src); err != nil {
			return err
		}
		if err := w.count(); err != nil {
			return err
		}
		if err := w.quantiseWeights(); err != nil {
			return err
		}
	}
	if err := w.changeConfig(); err != nil {
		return err
	}
	var before map[string]string
	if !w.withoutMeta {
		before = withAliases(w.src.Metadata, w.aliases, w.tied)
		if w.src.OfTorch() {
			before = withPairs(before, torchFormat(before))
		}
	}
	w.metadata = withPairs(before, w.pairs)
	if w.tie {
		w.tensors, w.metadata = safetensors.Tie(w.tensors, w.metadata)
	}
	if len(before) == 0 && len(w.metadata) > 0 {
		w.metadata = withPairs(w.metadata, torchFormat(w.metadata))
	}
	if w.quantize == "" {
		return w.count()
	}
	return nil
}

// A copied describes what cp has written. Its fields are also the JSON that cp prints.
type copied struct {
	File  string   `json:"file"`  // name on the command line
	Total total    `json:"total"` // totals over all tensors
	Files []string `json:"files"` // names of the other files, sorted
}

func (w *copyJob) written(name string) *copied {
	c := &copied{File: name, Files: append([]string{}, slices.Sorted(slices.Values(w.side))...)}
	for _, t := range w.tensors {
		c.Total.add(listed{Parameters: numbers.Count(t), Bytes: t.Size()})
	}
	return c
}

// candidates returns the names that --only and --except select from: those of the tensors, of the
// entries that cannot be read, and of tied tensors. It sets aliases.
func (w *copyJob) candidates() []string {
	if !w.withoutMeta {
		w.aliases = aliasesOf(w.src)
	}
	return slices.Concat(namesOf(w.src), slices.Sorted(maps.Keys(w.aliases)))
}

// choose selects and renames tensors of the source: it sets names and renamed.
func (w *copyJob) choose() (err error) {
	w.names, err = w.selection.Of(w.candidates())
	if w.names, err = selected(w.names, err, w.plain != 0, "--dequantize bf16 writes its numbers", w.src); err != nil {
		return err
	}
	if err = refusedError(w.src, w.names); err != nil {
		return err
	}
	w.renamed, err = pattern.RenameAll(w.names, w.renaming)
	return err
}

// take sets tensors to the chosen tensors of the source, with their new names and dtypes, and sets
// origin. It sets read to the size of these tensors in the source.
func (w *copyJob) take() (err error) {
	src, names, renamed := w.src, w.names, w.renamed
	w.dtypes, w.stored = make(map[safetensors.DType]safetensors.DType), make(map[safetensors.DType]int)
	w.tensors, w.origin = make(map[string]safetensors.Tensor, len(names)), make(map[string]string, len(names))
	if !w.untied {
		w.tied = tieAliases(names, renamed, w.aliases)
	}
	for i, name := range names {
		if _, tied := w.tied[renamed[i]]; tied {
			continue
		}
		if stored, is := w.aliases[name]; is { // the stored name may be empty
			name = stored
		}
		t := src.Tensors[name]
		w.read += t.Size()
		w.origin[renamed[i]] = name
		if to := w.target(name, cmp.Or(w.widened[name], t.DType())); to != t.DType() {
			if t, err = t.Convert(to); err != nil {
				return ofTensor(name, err)
			}
		}
		w.tensors[renamed[i]] = t
	}
	w.read = min(w.read, w.size)
	return nil
}
