// Package dest writes checkpoints to where a command was told to: files, folders,
// buckets, standard output.
package dest

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Destination is where a checkpoint is written to.
type Destination interface {
	// Free returns an error if a file stands in the way of a new checkpoint.
	Free() error

	// Write writes a checkpoint. If it fails, there is nothing new.
	Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error
}

// A UsageError is the error for a destination that makes no sense.
type UsageError struct{ error }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Parse returns the destination of a name. maxBytes is the size of a shard in a
// folder, 0 if all goes into one file. ctx ends uploads.
func Parse(ctx context.Context, name string, stdout io.Writer, maxBytes int64) (Destination, error) {
	name, err := localfile.Path(name)
	if err != nil {
		return nil, usage("%v", err)
	}
	bare := name
	if bucket.IsURL(name) {
		bare, _, _ = strings.Cut(name, "?") // the query is for the driver
	}
	f := formatOf(bare)
	switch {
	case name == "":
		return nil, usage("the destination has no name")
	case name == "-" && term.Is(stdout):
		return nil, usage("standard output is a terminal")
	case strings.Contains(name, "://") && !bucket.IsURL(name):
		scheme, _, _ := strings.Cut(name, "://") // the rest may hold a signature
		return nil, usage("cannot write to %s:// URLs", scheme)
	case f != nil && f.Write == nil:
		return nil, usage("no %s can be written, only %s files", f.Name, format.Written())
	case maxBytes > 0 && (f != nil || name == "-"):
		return nil, usage("shards go into a folder, and %s is a file", name)
	case name == "-":
		return stream{stdout}, nil
	case bucket.IsURL(name):
		b, key, err := bucket.Open(ctx, name)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return object{b, key, f.Write}, nil
		}
		return objects{b, key, maxBytes}, nil
	case f != nil:
		return single{name, f}, nil
	}
	return folder{name, maxBytes}, nil
}

// formatOf returns the format that the name of a file has, or nil.
func formatOf(name string) *format.Format {
	return format.ByName(strings.TrimRight(filepath.ToSlash(name), "/"))
}

// A stream is standard output.
type stream struct{ w io.Writer }

func (s stream) Free() error { return nil }

func (s stream) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	return safetensors.Write(s.w, tensors, metadata)
}

// A single is a file.
type single struct {
	name   string
	format *format.Format
}

func (s single) Free() error {
	_, err := os.Lstat(s.name)
	return checkAbsent(s.name, err)
}

// checkAbsent returns an error unless err says that a file does not exist.
func checkAbsent(name string, err error) error {
	if err == nil {
		err = fmt.Errorf("%s exists; --force replaces it", term.Name(name))
	}
	return ignoreAbsent(err)
}

func (s single) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	if s.format == format.Safetensors { // by several goroutines
		return safetensors.WriteFile(s.name, tensors, metadata)
	}
	return WriteFile(s.name, func(w io.Writer) error { return s.format.Write(w, tensors, metadata) })
}

// WriteFile has write write a new file, which takes its name only when it is complete
// and flushed to the disk: what safetensors.WriteFile does, for other formats.
func WriteFile(name string, write func(io.Writer) error) error {
	return osfile.Save(name, func(a *osfile.Atomic) error { return write(io.NewOffsetWriter(a, 0)) })
}

// Writing returns a func that writes data.
func Writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// rename gives a file its name, and flushes that to the disk.
func rename(temp, name string) error {
	return osfile.Named(name, func() error { return os.Rename(temp, name) })
}

// A folder holds one file, or several shards and their index.
type folder struct {
	name     string
	maxBytes int64
}

// Folder returns a folder of this machine, whatever its name is.
func Folder(name string) Shared { return folder{name: name} }

func (f folder) Free() error { return free(f) }

// IsCheckpoint reports whether a file in a folder is of a checkpoint.
func IsCheckpoint(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json")
}

func (f folder) Write(tensors map[string]safetensors.Tensor, metadata map[string]string) error {
	return safetensors.WriteShards(f.name, tensors, metadata, f.maxBytes)
}
