package main

import (
	"fmt"
	"path/filepath"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// checkDestination returns an error if the destination is another shard of the same model as a source. The user has
// probably forgotten DST, and --force would replace the last shard of the model.
func checkDestination(names []string, name string) error {
	last, ok := variant.ParseShard(filepath.Base(name))
	for _, source := range names {
		shard, numbered := variant.ParseShard(filepath.Base(source))
		if ok && numbered && shard.Set() == last.Set() && shard.Number != last.Number && filepath.Dir(source) == filepath.Dir(name) {
			return usage("the last argument is DST, and %s is a shard of the same model as %s: name a DST", storage.Shown(name), storage.Shown(source))
		}
	}
	return nil
}

// hasNoMetadata reports whether a destination is a file in a format without metadata.
func hasNoMetadata(name string) bool {
	of := format.ByName(name)
	return of != nil && of.NoMetadata
}

// A copyTarget is the destination of cp and merge.
type copyTarget struct {
	name   string // name on the command line
	dst    dest.Destination
	folder dest.Dir    // the same as dst, or nil if dst is a file
	shards dest.Shared // the same as dst, or nil if dst is a file or takes the files of ranks
	whole  bool        // whether the shards of the source may become the shards of the folder
	named  bool        // whether the copy is a single file that keeps its name in the folder
}

// lock locks the folder of a destination until unlock is called. It does nothing for a file. If
// together is true, the lock is shared with other such copies: those of a single file.
func (to copyTarget) lock(together bool) (unlock func(), err error) {
	if to.folder == nil {
		return func() {}, nil
	}
	return to.folder.Lock(together)
}

// openTarget opens the destination for a copy of a number of sources, and checks that the flags
// suit it.
func (c *command) openTarget(name string, f *copyFlags, sources int) (to copyTarget, err error) {
	to.name = name
	if to.dst, err = f.aligned(c.openDestination(name, f.maxShardSize, f.ranks)); err != nil {
		return to, err
	}
	to.folder, _ = to.dst.(dest.Dir)
	to.shards, _ = to.dst.(dest.Shared)
	to.whole = to.shards != nil && sources == 1 && f.maxShardSize == ""
	if to.shards == nil { // otherwise ready checks the folder, because the names of the shards depend on the source
		if err := unoccupied(to.dst, f.force); err != nil {
			return to, err
		}
	}
	if hasNoMetadata(name) && (f.tie || f.meta != nil) {
		return to, usage("--meta, --tie: a %s has no place for metadata", format.ByName(name).Name)
	}
	if f.withFiles && to.folder == nil {
		return to, usage("--with-files: %s is a file, and other files go into a folder", term.Name(name))
	}
	return to, nil
}

// aligned returns dst with the alignment of --align. err is the error of opening dst: if it is not
// nil, aligned returns it unchanged.
func (f *copyFlags) aligned(dst dest.Destination, err error) (dest.Destination, error) {
	if err != nil || f.align == 0 {
		return dst, err
	}
	return dest.Aligned(dst, f.align)
}

// notPipeline returns an error if a model would be written to the top of a folder with a pipeline of diffusers. A reader of
// a pipeline opens only the models in its folders.
func (c *command) notPipeline(to copyTarget) error {
	if to.folder == nil || to.named {
		return nil
	}
	files, err := to.folder.Files("", false)
	if _, listed := files[pipelineFile]; err != nil || !listed {
		return err
	}
	models, err := c.opener.Models(to.name)
	if err != nil || len(models) == 0 {
		return err // a folder without models is opened as one model
	}
	shown := func(dir string) string { return storage.Shown(source.Inside(to.name, dir)) }
	return fmt.Errorf("%s is a pipeline, and a reader opens only the models in its folders: write to one of these (%s), or to another folder",
		term.Name(to.name), variant.List(models, 5, shown))
}
