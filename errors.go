package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A FormatError reports which rule a file or an index breaks, and where. The bytes are at fault,
// never an argument.
type FormatError struct {
	Offset int64  // where in the file, in bytes; -1 if unknown
	Tensor string // the tensor at fault, "" if none
	Reason string // the rule, with the numbers found and expected

	truncated bool // whether the input ends too early
}

// Unwrap returns [io.ErrUnexpectedEOF] if the file ends too early, otherwise nil.
func (e *FormatError) Unwrap() error {
	if e.truncated {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (e *FormatError) Error() string {
	var b strings.Builder
	if e.Tensor != "" {
		b.WriteString("tensor " + quote(e.Tensor) + ": ")
	}
	b.WriteString(e.Reason)
	if e.Offset >= 0 {
		fmt.Fprintf(&b, " (at byte %d)", e.Offset)
	}
	return b.String()
}

// scanError returns an error of a jsonscan.Scanner as a FormatError. base is the offset in the
// file at which the scanned text starts.
func scanError(err error, base int64, tensor []byte) error {
	var broken *jsonscan.Error
	if !errors.As(err, &broken) {
		return err
	}
	return &FormatError{Offset: base + int64(broken.Pos), Tensor: string(tensor), Reason: broken.Reason}
}

// prefixed puts the prefix before an error that leaves the package.
func prefixed(err error) error { return prefix.Add(err) }

// bare removes the prefix from an error that comes back into the package: from a callback that
// called one of its exported functions.
func bare(err error) error { return prefix.Strip(err) }

// A shardError is the error of opening a shard, for a caller that names the shard itself: Error
// omits paths that end in that name.
type shardError struct {
	shard string
	err   error
}

func (e *shardError) Unwrap() error { return e.err }

func (e *shardError) Error() string {
	err := e.err
	for {
		p, ok := err.(*fs.PathError)
		if !ok || !strings.HasSuffix("/"+filepath.ToSlash(p.Path), "/"+e.shard) {
			return err.Error()
		}
		err = p.Err
	}
}

// A noTensorError reports that no tensor of a checkpoint has this name.
type noTensorError struct {
	name   string
	opened string // the path of the checkpoint; "" if it has none
}

func (e *noTensorError) Is(target error) bool { return target == fs.ErrNotExist }

func (e *noTensorError) Error() string {
	where := ""
	if e.opened != "" {
		where = " of " + fileText(e.opened)
	}
	return "no tensor" + where + " is named " + quote(e.name)
}

// tensorError adds the name of a tensor to an error about it. It returns nil for nil.
func tensorError(name string, err error) error {
	if err == nil {
		return nil
	}
	err, where := bare(err), "tensor "+quote(name)
	if read, ok := err.(*readError); ok && read.tensor == where {
		return err
	}
	return fmt.Errorf("%s: %w", where, err)
}

// A readError names the tensor and the file whose bytes could not be read.
type readError struct {
	tensor, file string // "tensor" and the quoted name of the tensor, and the name of the file; one may be ""
	err          error
}

func (e *readError) Unwrap() error { return e.err }

func (e *readError) Error() string {
	where := slices.DeleteFunc([]string{e.tensor, e.file}, func(name string) bool { return name == "" })
	return strings.Join(where, " of ") + ": " + e.err.Error()
}

// fileText returns the name of a file for an error. It quotes a name with control characters.
func fileText(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return quote(name)
	}
	return name
}

// quote quotes a name for an error, and shortens a long one: a name may be as long as a header.
func quote(name string) string {
	const limit = 200
	if len(name) > limit {
		return strconv.Quote(name[:limit]) + "..."
	}
	return strconv.Quote(name)
}
