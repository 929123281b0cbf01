// Package dest writes checkpoints to the destination of a command: a file, a folder, a bucket or
// standard output.
package dest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/osfile"
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
	info, err := os.Stat(name)
	exists := err == nil && info.IsDir()
	switch {
	case KeepsName(name) && (exists || f != nil && f.Write != nil): // otherwise the user wants a file in a format that is only read
		f = nil
	case f != nil && exists:
		return nil, usage("%s is a folder, but a DST that ends in %s is a file: %s means the folder", term.Name(name), path.Ext(bare), term.FileWord(name+"/"))
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
	case f != nil && f.Write == nil && f.Instead != "":
		return nil, usage("%ss cannot be written; %s", f.Name, f.Instead)
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
	if strings.EqualFold(ending, ".sft") || strings.EqualFold(ending, ".st") { // other endings of safetensors files
		return strings.TrimSuffix(name, ending) + ".safetensors"
	}
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
