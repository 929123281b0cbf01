package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/convert"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
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
	apart    pair              // the head and the embedding that a merge has made different
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
	if !w.withoutMeta {
		if err = checkAliases(w.src, w.names); err != nil {
			return err
		}
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
