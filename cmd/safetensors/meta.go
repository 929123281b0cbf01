package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/spf13/cobra"
)

func (c *command) meta() *cobra.Command {
	var remove []string
	var inPlace bool
	cmd := c.verb("meta SRC [KEY=VALUE...] [--delete KEY] [--in-place] [--json]", "Print or change metadata", `
Without --in-place, the changes are only printed, and nothing is written. If SRC has no
metadata yet, format=pt is added, because some loaders of PyTorch refuse other metadata
without it.

With --in-place, SRC is a .safetensors file of this machine, a folder with
model.safetensors or model.safetensors.index.json, or that index. A file is replaced as a
whole and durably; a symbolic link stays, and its target is replaced. Shards are replaced
all at once, under new names.

--json prints the metadata as an object.
`+sources, `
safetensors meta model.safetensors
safetensors meta model.safetensors license=mit --delete origin --in-place
`, arguments(1, -1), func(args []string) error {
		pairs, err := parsePairs(args[1:])
		if err != nil && strings.Contains(args[0], "=") && !looksLikeSource(args[0]) {
			return usage("%w: expected SRC before KEY=VALUE", err)
		}
		if err != nil {
			return usage("%w; meta SRC prints all keys", err)
		}
		return c.changeMeta(args[0], pairs, remove, inPlace)
	})
	cmd.Flags().StringArrayVar(&remove, "delete", nil, "remove the `KEY`")
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "change SRC")
	return cmd
}

func (c *command) changeMeta(name string, pairs map[string]string, remove []string, inPlace bool) error {
	if inPlace && len(pairs)+len(remove) == 0 {
		return usage("--in-place: there is nothing to change")
	}
	if inPlace && (name == "-" || storage.IsURL(name) && !strings.HasPrefix(name, "file://")) { // refused before any request
		return inCopyOnly(name)
	}
	if err := c.oneModel([]string{name}, "meta takes one"); err != nil {
		return err
	}
	src, err := c.opener.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	metadata, err := changeMetadata(src.Metadata, pairs, remove)
	if err != nil {
		return err
	}
	if inPlace {
		if err := c.replaceMeta(src, metadata); err != nil || !c.json {
			return inPlaceError(err)
		}
		return c.print(metadata, func() {})
	}
	if len(pairs)+len(remove) > 0 {
		advice := "--in-place changes " + storage.Shown(name)
		if _, ok := replaceable(src); !ok {
			advice = "cp --meta writes a copy"
		}
		c.opener.Note("nothing is written; " + advice)
	}
	if metadata == nil {
		metadata = map[string]string{} // prints {} instead of null
		if !c.json {
			if len(remove) > 0 {
				c.opener.Note("no metadata would be left")
			} else {
				c.opener.Note(storage.Shown(name) + " has no metadata")
			}
		}
	}
	return c.print(metadata, func() { c.printMetadata(metadata) })
}

// inPlaceError adds advice to the error if a file cannot be changed in place because a permission is missing: the
// permissions of the folder matter, and not those of the file.
func inPlaceError(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: --in-place writes a new file into the folder, which needs the permission to do so; cp --meta writes a copy elsewhere", err)
	}
	return err
}

func inCopyOnly(name string) error {
	return fmt.Errorf("%s cannot be changed in place; cp --meta writes a copy", storage.Shown(name))
}

// changeMetadata returns metadata with the changes applied. It returns nil if nothing is left. If
// there was no metadata before, it adds a format.
func changeMetadata(metadata, pairs map[string]string, remove []string) (map[string]string, error) {
	begins := len(metadata) == 0
	metadata = maps.Clone(metadata)
	for _, key := range remove {
		if _, ok := metadata[key]; !ok {
			return nil, fmt.Errorf("there is no metadata %q to delete", key)
		}
		delete(metadata, key)
	}
	if metadata = withPairs(metadata, pairs); len(metadata) == 0 {
		return nil, nil
	}
	if begins {
		metadata = withPairs(metadata, torchFormat(metadata))
	}
	return metadata, nil
}

// replaceable reports whether the file or the folder of a source can be replaced by one that has
// different metadata. If it is a folder, index is the path of its index.
func replaceable(src *source.Checkpoint) (index string, ok bool) {
	ok = !src.Joined && !strings.HasPrefix(src.Name, "hf://")
	for _, file := range src.Files {
		ok = ok && file.Path != ""
		if file.Name == format.IndexFile {
			index = file.Path
		}
	}
	if len(src.Files) == 1 { // a source without a format is a folder, whose only file may be one of torch.save
		return "", ok && cmp.Or(src.Format, format.ByName(src.Files[0].Name)) == format.Safetensors
	}
	return index, ok && index != "" && src.Layout != nil
}

// replaceMeta replaces the file or the folder of a source with one that has different metadata.
func (c *command) replaceMeta(src *source.Checkpoint, metadata map[string]string) error {
	index, ok := replaceable(src)
	if !ok {
		return inCopyOnly(src.Name)
	}
	size := int64(0)
	for _, file := range src.Files {
		size += file.Size
	}
	defer c.progress("meta", size)()
	if index != "" {
		return c.replaceShards(src, filepath.Dir(index), metadata)
	}
	name, err := dest.Replaced(src.Files[0].Path)
	if err != nil {
		return err
	}
	align, err := alignmentOf(src)
	if err != nil {
		return err
	}
	to, err := dest.Aligned(dest.File(name), align)
	if err != nil {
		return err
	}
	check, unlock := unchangedAlone(src, filepath.Dir(name))
	defer unlock()
	return to.Write(src.Tensors, metadata, check)
}

// alignmentOf returns the largest power of two, up to maxAlign, of which the offset of the data is a multiple in each
// safetensors file of a source. New files keep this alignment, which the source may owe to --align.
func alignmentOf(src *source.Checkpoint) (int, error) {
	offsets := uint64(maxAlign)
	for _, file := range src.Files {
		if storage.IsIndex(file.Name) {
			continue
		}
		f, _, err := osfile.OpenRegular(file.Path)
		if err != nil {
			return 0, err
		}
		var length [8]byte
		_, err = io.ReadFull(f, length[:])
		f.Close()
		if err != nil {
			return 0, err
		}
		offsets |= binary.LittleEndian.Uint64(length[:]) + uint64(len(length))
	}
	return int(offsets & -offsets), nil
}

// unchangedAlone returns a check for the moment before a file of a source is replaced in dir. The check
// locks dir until unlock is called, and returns an error if the source has changed. So of two processes
// that change the same file at once, the second one finds that it has changed.
func unchangedAlone(src *source.Checkpoint, dir string) (check func() error, unlock func()) {
	release := func() {}
	return func() error {
		release = dest.LockBriefly(dir)
		return src.Unchanged()
	}, func() { release() }
}

// checkShard returns an error if a shard has something that the source lacks, and that would be
// lost: a tensor that the index does not name, or metadata that neither the first shard nor the
// index has.
func (c *command) checkShard(src *source.Checkpoint, file storage.File) error {
	shard, err := c.opener.Open(file.Path)
	if err != nil {
		return err
	}
	defer shard.Close()
	lost := func(what, name, whole string) error {
		return fmt.Errorf("%s: %s %q of %s would be lost: %s does not have it; cp --meta writes a copy without it",
			storage.Shown(src.Name), what, name, term.Name(file.Name), whole)
	}
	for _, name := range shard.Order {
		if _, ok := src.Tensors[name]; !ok {
			return lost("tensor", name, "the index")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(shard.Metadata)) {
		if value, ok := src.Metadata[key]; !ok || value != shard.Metadata[key] {
			return lost("metadata", key, "the checkpoint as a whole")
		}
	}
	return nil
}

// checkAlone returns an error if the folder has files of another checkpoint with the stem of src, such as a
// model.safetensors next to the shards of src. set would remove such files, because it considers them files of an
// earlier version of src.
func checkAlone(src *source.Checkpoint, set *dest.Set, dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		own := slices.ContainsFunc(src.Files, func(f storage.File) bool { return f.Name == e.Name() })
		if !own && set.Replaces(strings.ToLower(e.Name())) {
			return fmt.Errorf("%s: %s is not of this checkpoint and would be lost; cp --meta writes a copy elsewhere",
				storage.Shown(src.Name), term.Name(e.Name()))
		}
	}
	return err
}

// replaceShards replaces all shards in a folder at once. Each new shard has the tensors of an old
// one.
func (c *command) replaceShards(src *source.Checkpoint, dir string, metadata map[string]string) error {
	unlock, err := dest.Folder(dir).Lock(false)
	if err != nil {
		return err
	}
	defer unlock()
	if err := src.Unchanged(); err != nil { // a process that held the lock before may have changed them
		return err
	}
	w := &copyJob{src: src, tensors: src.Tensors, origin: make(map[string]string)}
	for name := range src.Tensors {
		w.origin[name] = name
	}
	for _, file := range src.Files {
		if file.Name == format.IndexFile {
			continue
		}
		if err := c.checkShard(src, file); err != nil {
			return err
		}
	}
	set := &dest.Set{Shards: make(map[string]dest.Shard), Metadata: metadata, Force: true, Unchanged: src.Unchanged}
	w.deal(set)
	if err := checkAlone(src, set, dir); err != nil {
		return err
	}
	align, err := alignmentOf(src)
	if err != nil {
		return err
	}
	to, err := dest.Aligned(dest.Folder(dir), align)
	if err != nil {
		return err
	}
	return set.Write(to.(dest.Shared))
}
