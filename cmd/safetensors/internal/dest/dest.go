// Package dest writes checkpoints to the destination of a command: a file, a folder, a bucket or
// standard output.
package dest

import (
	"bufio"
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

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/variant"
)

func init() { osfile.Instead = "write to - or to s3://BUCKET/KEY" }

// A Destination is a place to which a checkpoint is written.
type Destination interface {
	// Free returns an error if writing a checkpoint would replace a file.
	Free() error

	// Write writes a checkpoint. If last is not nil, Write calls it after all bytes of a file are
	// written, and before a reader can open the new checkpoint. It may call last several times. If last
	// returns an error, Write fails. If Write fails, the destination has no new file; only standard
	// output has the bytes that were written before.
	Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error
}

// A Copier is a Destination to which the bytes of a safetensors file can be copied.
type Copier interface {
	Destination

	// Copy is like Write, but writes the bytes of s.CopyTo: a file with all tensors of the checkpoint.
	Copy(s Shard, last func() error) error
}

// CopierTo returns d as a Copier. ok is false if d writes files of another format, or several files.
func CopierTo(d Destination) (c Copier, ok bool) {
	switch d := d.(type) {
	case single:
		return d, d.format == format.Safetensors
	case made:
		return d, d.format == format.Safetensors
	case object:
		return d, d.format == format.Safetensors
	}
	c, ok = d.(Copier)
	return c, ok
}

// A UsageError is the error for an invalid destination.
type UsageError struct{ error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Parse returns the destination with a name. maxBytes is the largest size of a shard in a folder,
// or 0 for a single file. Once ctx is done, uploads end.
func Parse(ctx context.Context, name string, stdout io.Writer, maxBytes int64) (Destination, error) {
	name, err := localfile.Path(name)
	if err != nil {
		return nil, usage("%v", err)
	}
	bare := name
	if bucket.IsURL(name) {
		bare, _, _ = strings.Cut(name, "?") // the query has options of the store
	}
	f := formatOf(bare)
	if info, err := os.Stat(name); f != nil && err == nil && info.IsDir() {
		if !KeepsName(name) {
			return nil, usage("%s is a folder, and DST is a file if it ends in %s: with a slash at its end, it is a folder", term.Name(name), path.Ext(bare))
		}
		f = nil
	}
	switch {
	case name == "":
		return nil, usage("the destination has no name")
	case name == "-" && term.Is(stdout):
		return nil, usage("standard output is a terminal, and the file is binary: expected a file or a pipe")
	case strings.Contains(name, "://") && !bucket.IsURL(name):
		scheme, rest, _ := strings.Cut(name, "://") // the rest may contain a signature
		if scheme == "hf" {
			repo := repository().FindString(rest)
			return nil, usage("cannot write to hf:// URLs: write a folder, which hf upload puts on the hub: hf upload %s FOLDER", cmp.Or(repo, "OWNER/NAME"))
		}
		return nil, usage("cannot write to %s:// URLs, only to files, folders and buckets (s3://, gs://, azblob://)", scheme)
	case f != nil && f.Write == nil:
		return nil, usage("%ss cannot be written, only %s files, and folders", f.Name, format.Written())
	case maxBytes > 0 && (f != nil || name == "-"):
		return nil, usage("shards go into a folder, and %s is a file", name)
	case name == "-":
		return stream{stdout}, nil
	case bucket.IsURL(name) && suffixed(bare) != "":
		return nil, usage("%s would be a folder, did you mean %q?", term.Name(path.Base(bare)), path.Base(suffixed(bare)))
	case bucket.IsURL(name):
		b, key, err := bucket.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return object{b, key, f}, nil
		}
		return objects{b, key, maxBytes}, nil
	case f != nil:
		return single{name: name, format: f}, nil
	}
	info, err := os.Stat(name)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return nil, usage("%s is a device or a pipe: for standard output, DST is -", term.Name(name))
	} else if err == nil && !info.IsDir() {
		return nil, usage("%s is not a folder: DST is a folder, unless it ends in %s", term.Name(name), format.Written())
	} else if meant := almost(name); err != nil && meant != "" {
		return nil, usage("%s would be a folder, did you mean %q?", term.Name(name), meant)
	}
	return folder{name: name, maxBytes: maxBytes, created: new(created)}, nil
}

// almost returns name with the ending that it probably should have, if its ending looks misspelled
// or stands before a suffix, or "" otherwise.
func almost(name string) string {
	if meant := suffixed(name); meant != "" {
		return meant
	}
	ending := filepath.Ext(name)
	for _, known := range []string{".safetensors", ".npz"} {
		if d := pattern.Distance(strings.ToLower(ending), known, 3); ending != "" && d < 3 && len(ending) > 3 && (len(known) > 5 || d < 2) {
			return strings.TrimSuffix(name, ending) + known
		}
	}
	return ""
}

// suffixed returns the name of a file with the suffix before its ending, such as x.bak.safetensors, if
// name has the suffix after the ending of a format that the command reads or writes, as
// x.safetensors.bak and x.safetensors~ do. Otherwise it returns "". An ending that cannot be written
// becomes .safetensors.
func suffixed(name string) string {
	name = strings.TrimRight(filepath.ToSlash(name), "/")
	file := strings.TrimRight(name, "~")
	if file == name {
		file = strings.TrimSuffix(name, path.Ext(name))
	}
	f := format.ByName(file)
	if file == name || f == nil || f.Open == nil && f.Write == nil {
		return ""
	}
	ending := path.Ext(file)
	stem := strings.TrimSuffix(file, ending)
	if f.Write == nil {
		ending = format.Safetensors.Endings[0]
	}
	return stem + name[len(file):] + ending
}

var repository = lazyregexp.New(`^[\w.-]+/[\w.-]+`)

// Aligned returns d with the setting that the data buffer of files starts at a multiple of align
// bytes. align must be a power of two.
func Aligned(d Destination, align int) (Destination, error) {
	switch d := d.(type) {
	case single:
		if d.format == format.Safetensors {
			d.align = align
			return d, nil
		}
	case made:
		d.align = align
		return d, nil
	case folder:
		d.align = align
		return d, nil
	}
	return nil, usage("--align is for .safetensors files and folders of this machine: their data is what programs map")
}

// formatOf returns the format that the ending of a name indicates, or nil.
func formatOf(name string) *format.Format {
	return format.ByName(strings.TrimRight(filepath.ToSlash(name), "/"))
}

// A stream writes to standard output.
type stream struct{ w io.Writer }

func (s stream) Free() error { return nil }

func (s stream) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	return calling(last, func(w io.Writer) error { return safetensors.Write(w, tensors, metadata) })(s.w)
}

func (s stream) Copy(of Shard, last func() error) error { return calling(last, of.CopyTo)(s.w) }

// calling returns a func that calls write, and then last, if it is not nil.
func calling(last func() error, write func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		err := write(w)
		if err == nil && last != nil {
			err = last()
		}
		return err
	}
}

// A single writes one file.
type single struct {
	name   string
	format *format.Format
	align  int
}

func (s single) Free() error {
	if err := checkCache(filepath.Dir(s.name)); err != nil {
		return err
	}
	_, err := os.Lstat(s.name)
	if dir := filepath.Dir(s.name); errors.Is(err, fs.ErrNotExist) {
		if _, noDir := os.Stat(dir); errors.Is(noDir, fs.ErrNotExist) {
			return fmt.Errorf("create %s: the folder %s does not exist", term.Name(s.name), term.Name(dir))
		}
	}
	return checkReplaceable(s.name, err)
}

// checkReplaceable is like checkAbsent for a local file. If the file cannot be replaced, such as a link to nothing, it returns
// the reason.
func checkReplaceable(name string, err error) error {
	if err == nil {
		if _, fixed := Replaced(name); fixed != nil {
			return fixed
		}
		if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder, and no file can replace it", term.Name(name))
		}
	}
	return checkAbsent(name, err)
}

// checkAbsent returns an error unless err, the result of looking for the file with this name, means
// that the file does not exist.
func checkAbsent(name string, err error) error {
	if err == nil {
		err = fmt.Errorf("%s exists; --force replaces it", term.Name(name))
	}
	return ignoreAbsent(err)
}

func (s single) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	if s.format == format.Safetensors { // safetensors.WriteFile is faster than format.Write, because it uses several goroutines
		name, err := Replaced(s.name)
		if err != nil {
			return err
		}
		return safetensors.Saver{Align: s.align, Check: last}.WriteFile(name, tensors, metadata)
	}
	return WriteFile(s.name, calling(last, func(w io.Writer) error { return s.format.Write(w, tensors, metadata) }))
}

func (s single) Copy(of Shard, last func() error) error {
	name, err := Replaced(s.name)
	if err != nil {
		return err
	}
	return copyFile(name, osfile.Settings{Check: last}, of)
}

// copyFile writes the bytes of a shard to a new file. It reserves the space for the file first, as
// safetensors.WriteFile does.
func copyFile(name string, settings osfile.Settings, of Shard) error {
	return settings.Save(name, func(a *osfile.Atomic) error {
		if err := a.Reserve(max(of.Size, 0)); err != nil {
			return err
		}
		const block = 1 << 20
		w := bufio.NewWriterSize(io.NewOffsetWriter(a, 0), block)
		return cmp.Or(of.CopyTo(w), w.Flush())
	})
}

// WriteFile calls write to write a new file, which gets its name only when it is complete and
// flushed to the disk. It is like safetensors.WriteFile, but for other formats, and it keeps a
// symbolic link: see Replaced.
func WriteFile(name string, write func(io.Writer) error) error {
	name, err := Replaced(name)
	if err != nil {
		return err
	}
	return osfile.Save(name, func(a *osfile.Atomic) error { return write(io.NewOffsetWriter(a, 0)) })
}

// Replaced returns the name of the file that a new file replaces if it is written to name. If name is a
// symbolic link, that is the target of the link: the link stays, as with cp of Unix. Otherwise it is
// name. A link is an error if its target is missing, is not a regular file, such as a device, or is in the
// cache of a hub: the name of a blob is the sum of its content, on which other programs rely. A name in the
// cache of a hub is an error, too.
func Replaced(name string) (string, error) {
	if err := checkCache(filepath.Dir(name)); err != nil {
		return "", err
	}
	info, err := os.Lstat(name)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return name, nil // creating the file returns the error of Lstat again, if it matters
	}
	if link, err := os.Readlink(name); err == nil && osfile.IsBlob(filepath.ToSlash(link)) || isCached(name) {
		return "", fmt.Errorf("%s is a link to a file in the cache of a hub, which must not change: write to another file, or remove the link", term.Name(name))
	}
	target, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is a symbolic link to a file that does not exist: remove the link, or name the file", term.Name(name))
	}
	if err == nil {
		info, err = os.Stat(target)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a symbolic link to %s, which is not a regular file", term.Name(name), term.Name(target))
	}
	return target, err
}

// Writing returns a func that writes data to its argument.
func Writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// rename gives a temporary file its final name, and flushes the folder.
func rename(temp, name string) error {
	return osfile.Named(name, func() error { return osfile.Rename(temp, name) })
}

// File returns the safetensors file called name as a destination.
func File(name string) Destination { return single{name: name, format: format.Safetensors} }

// A folder is a folder of this machine with one file, or with several shards and their index.
type folder struct {
	name     string
	maxBytes int64
	align    int // alignment of the data buffer in files with tensors, or 0
	created  *created
}

// Folder returns the local folder called name as a destination. Parse would take a name such as
// x.safetensors for a file; Folder does not.
func Folder(name string) Shared { return folder{name: name, created: new(created)} }

func (f folder) Free() error {
	if err := checkCache(f.name); err != nil {
		return err
	}
	return free(f, f.maxBytes)
}

// IsCheckpoint reports whether a file in a folder belongs to a checkpoint, judging by its name.
func IsCheckpoint(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json")
}

// Write uses WriteShards for the temporary files and the commit.
func (f folder) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	return f.replace(nil, func() error {
		return safetensors.Saver{Align: f.align, Check: last}.WriteShards(f.name, tensors, metadata, f.maxBytes)
	})
}

// Copy also removes the files that WriteShards would remove: temporary files, and shards with the stem
// of the new model that no checkpoint needs. The caller must have locked the folder.
func (f folder) Copy(s Shard, last func() error) error {
	f.Sweep()
	there, err := f.Files("", false)
	if err != nil {
		return err
	}
	var shards []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if _, numbered := variant.ParseShard(name); numbered && modelOf(name) == modelOf(format.ModelFile) {
			shards = append(shards, name)
		}
	}
	return f.replace(shards, func() error {
		path, err := f.place(format.ModelFile)
		if err != nil {
			return err
		}
		return copyFile(path, osfile.Settings{Tag: osfile.SaverTag, Check: last}, s)
	})
}

// replace calls save to write a checkpoint, and then removes the files of an earlier checkpoint as a Set
// does, because WriteShards does not recognize all of them by their names. It also removes the files in
// shards, except those that are part of another checkpoint.
func (f folder) replace(shards []string, save func() error) error {
	s := &Set{}
	there, err := s.files(f)
	if err != nil {
		return err
	}
	earlier, stale, others, err := s.before(f, there)
	if err != nil {
		return err
	}
	replaced := slices.Concat(earlier, stale)
	for _, name := range shards {
		if !slices.Contains(replaced, name) && !slices.Contains(others, name) {
			replaced = append(replaced, name)
		}
	}
	if err = s.begin(f, replaced, nil, there); err == nil {
		err = save()
	}
	var left *osfile.Leftover
	if errors.As(err, &left) {
		replaced = slices.DeleteFunc(replaced, func(name string) bool { return slices.Contains(left.Names, name) })
	} else if err != nil {
		if _, found := there[recordName]; !found {
			remove(f, []string{recordName})
		}
		return err
	}
	if !s.records {
		return err
	}
	return errors.Join(err, s.endSaved(f, replaced, err != nil))
}

// endSaved is end for a checkpoint that a Saver has written. If keep is true, the record stays for the next Set.
func (s *Set) endSaved(f folder, replaced []string, keep bool) error {
	s.records = !keep
	now, err := f.Open()
	if err != nil {
		return fmt.Errorf("the new checkpoint in %s is complete, but cannot be opened to distinguish its files from those of an earlier one: %w", term.Name(f.name), err)
	}
	defer now.Close()
	shards := slices.Collect(maps.Keys(maps.Collect(now.Headers())))
	if len(shards) > 1 {
		s.Index = format.IndexFile
	}
	return s.end(f, replaced, shards)
}
