package main

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/pflag"
)

// unplanned are the flags of cp that make no difference to the bytes of the copy.
var unplanned = []string{"force", "help", "json", "part", "quiet"}

// planned returns the flags that are set and make a difference to the bytes, except those in but.
func (f *copyFlags) planned(but ...string) map[string][]string {
	set := make(map[string][]string)
	f.given.Visit(func(f *pflag.Flag) {
		if slices.Contains(unplanned, f.Name) || slices.Contains(but, f.Name) {
			return
		}
		set[f.Name] = []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			set[f.Name] = list.GetSlice()
		}
	})
	return set
}

func (c *command) copyPart(names []string, name string, f *copyFlags) error {
	switch {
	case f.maxShardSize == "":
		return usage("--part needs --max-shard-size, the same for all parts: each part writes some of these shards")
	case slices.Contains(names, "-"):
		return usage("--part needs a SRC that each part can read, not standard input")
	}
	dst, err := f.aligned(c.openDestination(name, f.maxShardSize, 0))
	if err != nil {
		return err
	}
	shared, ok := dst.(dest.Shared)
	if !ok {
		return usage("--part: %s is not a folder that parts can fill together", term.Name(name))
	}
	err = c.oneModel(names, "--part copies one")
	var w *copyJob
	if err == nil {
		w, err = c.openCopy(names, f)
	}
	if err != nil {
		onNetwork := func(name string) bool { return strings.Contains(name, "://") && !strings.HasPrefix(name, "file://") }
		if slices.ContainsFunc(names, onNetwork) {
			return permanent(err)
		}
		return permanentLocal(err)
	}
	defer w.src.Close()
	if f.requantizes() {
		for _, name := range quantConfigs { // their contents are cached, so that the part uses the same ones later
			if _, err := w.src.Folder.ReadFile(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if err := w.prepare(); err != nil {
		// Only in these cases may prepare have failed to read the source, so that another try may succeed.
		if f.plain != 0 || len(f.conversions) > 0 || errors.As(err, new(unreadConfig)) {
			return permanent(err)
		}
		return parts.Refuse(err)
	}
	c.noteTooLarge(w.tooLarge)
	return c.writePart(w, shared, name)
}

// permanent marks an error of reading a source as permanent, if another try cannot succeed.
func permanent(err error) error {
	if errors.As(err, new(*safetensors.FormatError)) || errors.Is(err, fs.ErrNotExist) {
		return parts.Refuse(err)
	}
	return err
}

// permanentLocal marks an error of a local source as permanent. An exception is an error of the
// operating system: then permanent decides, because the content of the file is not at fault.
func permanentLocal(err error) error {
	if errors.As(err, new(syscall.Errno)) {
		return permanent(err)
	}
	return parts.Refuse(err)
}

func (c *command) writePart(w *copyJob, dst dest.Shared, name string) error {
	pins, err := w.src.Pins()
	if err != nil {
		return parts.Refuse(err)
	}
	maxBytes, _ := term.ParseBytes(w.maxShardSize) // never fails, because openDestination has parsed it
	shards, index := dest.Numbered(safetensors.Split(w.tensors, maxBytes), stemOf(w.src), c.variantOf(w.src))
	if err := w.wholeAdapter(len(shards)); err != nil {
		return parts.Refuse(err)
	}
	flags := w.planned()
	flags["max-shard-size"] = []string{strconv.FormatInt(maxBytes, 10)}
	all := numbers.Bytes(w.tensors)
	stop := func() {}
	job := &parts.Job{
		To: dst, Name: storage.Shown(name), Part: w.part, Force: w.force,
		Plan:   parts.Plan{Command: version(), Flags: flags, Source: pins},
		Shards: shards, Index: index, Metadata: w.metadata,
		Parameters: w.parameters,
		AtOnce:     4,
		Unchanged:  func() error { return permanentLocal(w.unchanged()) },
		Free:       func() error { return w.partFree(dst) },
		Vacant: func(files map[string]dest.Stored) error {
			set := &dest.Set{Shards: make(map[string]dest.Shard), Index: index, Variant: c.variantOf(w.src)}
			for name := range shards {
				set.Shards[name] = dest.Shard{}
			}
			return c.vacant(w, copyTarget{name: name, folder: dst, shards: dst}, files, set)
		},
		CopyFiles: func() error { return w.copyFiles(dst) },
		Begin: func(size int64) {
			stop = c.progress("cp", int64(float64(w.read)*float64(size)/float64(max(all, 1))))
		},
	}
	if w.requantizes() {
		job.AtOnce = 2 // each shard holds results of computed tensors
	}
	result, err := job.Do()
	stop()
	w.notes(c.opener.Note)
	switch {
	case errors.As(err, new(*safetensors.FormatError)):
		return parts.Refuse(err)
	case err != nil:
		return err
	}
	return c.print(struct {
		File string `json:"file"`
		Part string `json:"part"`
		*parts.Result
	}{name, w.part.String(), result}, func() {})
}

// vacant returns an error if a reader of the folder to, which has these files, would open another checkpoint instead of set.
func (c *command) vacant(w *copyJob, to copyTarget, files map[string]dest.Stored, set *dest.Set) error {
	err := dest.CheckDistributed(to.shards, files, slices.Collect(maps.Keys(set.Shards)))
	if _, listed := files[pipelineFile]; listed && err == nil {
		err = c.notPipeline(to)
	}
	if _, found := files["config.json"]; err == nil && (found || slices.Contains(w.side, "config.json")) {
		err = w.checkLibrary(set, to.shards)
	}
	if err != nil && !storage.IsFault(err) { // another try would find the same files
		err = parts.Refuse(err)
	}
	return err
}

// partFree is sideFilesFree for a part. A file that another part of the same job has written has the same content, so
// that it is not in the way. Another try cannot succeed if a file is in the way.
func (w *copyJob) partFree(dst dest.Shared) error {
	err := w.sideFilesFree(dst)
	if errors.As(err, new(inTheWay)) {
		return parts.Refuse(err)
	}
	return permanent(err)
}
