package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/gosafetensors/safetensors/quant"
)

// noteConfig notes that the quantization_config that the copy needs was not written, or that the
// one of the source was not removed.
func (w *copyJob) noteConfig(note func(text string)) {
	if w.quantize != "" {
		note("no config.json with the new quantization_config was written: that takes a config.json in SRC and a folder as DST")
		return
	}
	if w.plain == 0 {
		return
	}
	if config, err := quant.FindConfig(w.src.Folder.ReadFile); err == nil && config != nil { // the result is cached, so that there is no new error
		note("config.json was not copied; with a folder as DST, one without the quantization_config is written")
	}
}

// noteCodes notes, for a copy of a folder to a file, that a config that the copied codes need was not copied.
func (w *copyJob) noteCodes(note func(text string)) {
	codes := slices.ContainsFunc(slices.Collect(maps.Values(w.tensors)), mayBeCodes)
	if w.plain != 0 || w.quantize != "" || !codes || !w.src.Folder.Whole() {
		return
	}
	if config, err := quant.FindConfig(w.src.Folder.ReadFile); err == nil && config != nil {
		note("the quantization_config was not copied, and programs need it to read the numbers; with a folder as DST, --with-files copies it")
	}
}

// noteAdapters notes which of several sources are adapters, if they are joined with a model.
func (c *command) noteAdapters(sources []*source.Checkpoint) {
	var adapters []string
	for _, src := range sources {
		if merge.IsAdapter(src.Order) {
			adapters = append(adapters, storage.Shown(src.Name))
		}
	}
	if n := len(adapters); n > 0 && n < len(sources) {
		c.opener.Note(fmt.Sprintf("the tensors of an adapter (%s) are written beside those of the model; merge --lora merges them", strings.Join(adapters, ", ")))
	}
}

// leftBehind returns the small files of a folder, a repository or a bucket that a copy to a folder does not have. It
// asks no server if the source is in the cache of the hub. A copy of a folder onto itself leaves nothing behind.
func (w *copyJob) leftBehind(dst string) ([]string, error) {
	if isOnto(w.src.Name, dst) {
		return nil, nil
	}
	away := strings.HasPrefix(w.src.Name, "hf://")
	if w.withFiles || !w.src.Folder.Whole() || len(w.src.Files) == 0 || away && w.src.Files[0].Path != "" {
		return nil, nil
	}
	local := w.src.Files[0].Path != ""
	names, err := w.src.Folder.SideFiles()
	if err != nil && !local { // who may read the files of a bucket may not be allowed to list them
		err = nil
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains(w.side, name) || name == adapterConfig && !hasAdapter(w.src)
	}), err
}

// isOnto reports whether a folder dst is the source itself, which is that folder or an index in it.
func isOnto(src, dst string) bool {
	if storage.IsIndex(src) {
		src = src[:strings.LastIndexAny(src, "/"+string(filepath.Separator))+1]
	}
	if strings.TrimRight(src, "/") == strings.TrimRight(dst, "/") {
		return true
	}
	from, noSource := statLocal(cmp.Or(src, "."))
	to, noTarget := statLocal(dst)
	return noSource == nil && noTarget == nil && os.SameFile(from, to)
}

// onItself returns the error for a folder that is to be copied onto itself without --force.
func onItself(dst string) error {
	return fmt.Errorf("%s is the source itself; --force replaces it", storage.Shown(dst))
}

// statLocal returns the information about a file of this machine, which may have a file:// URL.
func statLocal(name string) (fs.FileInfo, error) {
	name, err := localfile.Path(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(name)
}

const adapterConfig = "adapter_config.json"

// hasAdapter reports whether a source may have the weights that adapter_config.json describes. It returns false if the
// source is a model: a folder may also hold an adapter, but then only the model is copied, and a copy with
// adapter_config.json would lack the adapter.
func hasAdapter(src *source.Checkpoint) bool {
	return !slices.ContainsFunc(src.Files, func(f storage.File) bool { return variant.Model(path.Base(f.Name)) == format.Stem })
}

// strayConfigs returns the names of the configs in the folder of the destination that describe how other weights
// are quantised: those that the copy does not write, and that differ from the configs of the sources.
func (w *copyJob) strayConfigs(to dest.Dir) (names []string, err error) {
	if to == nil { // DST is a file
		return nil, nil
	}
	there, err := to.Files("", false)
	if err != nil {
		return nil, err
	}
	for _, name := range quantConfigs {
		if _, found := there[name]; !found || slices.Contains(w.side, name) {
			continue
		}
		old, err := to.Read(name, dest.MostSmall)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if quantised := quantisationIn(name, old); quantised != "" && !w.hasQuantisation(name, quantised) {
			names = append(names, name)
		}
	}
	return names, nil
}

// hasQuantisation reports whether a source has a config with this name and this quantisation, and the copy is
// quantised in the same way.
func (w *copyJob) hasQuantisation(name, quantised string) bool {
	return !w.requantizes() && slices.ContainsFunc(w.src.Sources(), func(src *source.Checkpoint) bool {
		text, err := src.Folder.ReadFile(name)
		return err == nil && quantisationIn(name, text) == quantised
	})
}

// quantisationIn returns the part of a config that describes how weights are quantised, or "" if there is none. For
// a file that describes nothing else, that is the whole text.
func quantisationIn(name string, text []byte) string {
	if name == "quantize_config.json" || name == "quant_config.json" {
		return string(text)
	}
	found, err := quant.FindConfig(func(other string) ([]byte, error) {
		if other != name {
			return nil, fs.ErrNotExist
		}
		return text, nil
	})
	if err != nil || found == nil {
		return ""
	}
	var fields map[string]json.RawMessage
	var own bytes.Buffer
	if json.Unmarshal(text, &fields) != nil || json.Compact(&own, fields["quantization_config"]) != nil {
		return string(text)
	}
	return own.String()
}

// noteStray notes configs that strayConfigs has found.
func (c *command) noteStray(to dest.Dir, names []string) {
	for _, name := range names {
		c.opener.Note(fmt.Sprintf("%s stays, and does not belong to the new weights: it describes how the earlier ones were quantised", term.Name(to.PathOf(name))))
	}
}

// pipelineFile is the file of a pipeline of diffusers that lists its components.
const pipelineFile = "model_index.json"

// modulesFile is the file of a model of sentence-transformers that lists its modules.
const modulesFile = "modules.json"

// firstLeft are the small files that noteLeft names as an example, if they are left behind: the
// list of the models in a folder, without which the others are not found, and then the configs.
var firstLeft = []string{pipelineFile, modulesFile, "config.json", adapterConfig}

// noteLeft notes the small files that a copy left behind: how many they are, and the name of one.
func (c *command) noteLeft(names []string) {
	if len(names) == 0 {
		return
	}
	example := names[0]
	for _, first := range slices.Backward(firstLeft) {
		if slices.Contains(names, first) {
			example = first
		}
	}
	which := term.Name(example)
	if len(names) > 1 {
		which = fmt.Sprintf("%d small files, such as %s,", len(names), which)
	}
	c.opener.Note(fmt.Sprintf("%s left behind; --with-files copies %s", which, term.Either(len(names), "it", "them")))
}

// noteTooLarge notes files that --with-files does not copy because of their size.
func (c *command) noteTooLarge(files []storage.Pin) {
	for _, file := range files {
		c.opener.Note(fmt.Sprintf("%s (%s) left behind: --with-files copies files of up to 64 MiB", term.Name(file.Name), term.Bytes(file.Size)))
	}
}

// noteMetadata notes that the format of dst cannot hold the metadata of src.
func (c *command) noteMetadata(dst, src string, metadata map[string]string) {
	lost := maps.Clone(metadata)
	delete(lost, "format") // format only names the program that made the file
	if to := format.ByName(dst); to != nil && to.NoMetadata && len(lost) > 0 {
		c.opener.Note(fmt.Sprintf("the metadata of %s is left out: a %s has no place for it", storage.Shown(src), to.Name))
	}
}
