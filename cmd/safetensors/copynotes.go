package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/gosafetensors/safetensors/quant"
)

// noteConfig notes that the quantization_config that the copy needs was not written, or that the
// one of the source was not removed.
func (c *command) noteConfig(w *copyJob) {
	if w.quantize != "" {
		c.opener.Note("no config.json with the new quantization_config was written: that takes a config.json in SRC and a folder as DST")
		return
	}
	if w.plain == 0 {
		return
	}
	if config, err := quant.FindConfig(w.src.Folder.ReadFile); err == nil && config != nil { // the result is cached, so that there is no new error
		c.opener.Note("config.json was not copied; with a folder as DST, one without the quantization_config is written")
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
	if sameFolder(w.src.Name, dst) {
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

// sameFolder reports whether two names on the command line are of one folder of this machine.
func sameFolder(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

const adapterConfig = "adapter_config.json"

// hasAdapter reports whether a source may have the weights that adapter_config.json describes. It returns false if the
// source is a model: a folder may also hold an adapter, but then only the model is copied, and a copy with
// adapter_config.json would lack the adapter.
func hasAdapter(src *source.Checkpoint) bool {
	return !slices.ContainsFunc(src.Files, func(f storage.File) bool { return variant.Model(path.Base(f.Name)) == format.Stem })
}

// noteLeft notes how many small files a copy left behind.
func (c *command) noteLeft(names []string) {
	if len(names) == 0 {
		return
	}
	example := names[0]
	if slices.Contains(names, "config.json") {
		example = "config.json"
	}
	c.opener.Note(fmt.Sprintf("%s, such as %s, left behind; --with-files copies them", term.Plural(len(names), "small file"), term.Name(example)))
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
