package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// Named returns an error with the name of a source, unless it already contains it. If the context
// is done, Named returns its cause instead.
func (s *Session) Named(name string, err error) error {
	if cause := context.Cause(s.Context); cause != nil {
		return cause
	}
	reason, shown := term.Bare(err), Shown(name)
	if path, ok := reason.(*fs.PathError); ok {
		if _, twice := path.Err.(*fs.PathError); twice || path.Path == name || path.Path == "." { // the path is that of the source itself
			reason = path.Err
		}
	}
	if names(reason, name) {
		shown = ""
	}
	return &Error{shown, asVerbs(reason), err}
}

// asVerbs applies WithVerbs to the text of an error. It adds advice for a file that is cut short.
func asVerbs(err error) error {
	before := err.Error()
	if advice := CutAdvice(err); advice != "" {
		return fmt.Errorf("%w%s", err, advice)
	}
	text := WithVerbs(before)
	if text == before {
		return err
	}
	return errors.New(text)
}

// CutAdvice returns advice for the end of an error about a file that is cut short, or "" for another error.
func CutAdvice(err error) string {
	var broken *safetensors.FormatError
	switch {
	case !errors.As(err, &broken) || !errors.Is(err, io.ErrUnexpectedEOF):
		return ""
	case strings.HasSuffix(broken.Reason, "the file is empty"):
		return ": perhaps a download did not finish"
	}
	return ": the file is cut short, perhaps by a download that did not finish"
}

// WithVerbs replaces the advice of the library in a text, which names packages and fields, with advice that names
// verbs and flags.
func WithVerbs(text string) string {
	return strings.NewReplacer(
		variant.PackagesRead, "cp reads files of torch.save by their names (.bin, .pt), and folders of .distcp files",
		variant.PackageOpens, "which needs a name that ends in .safetensors",
		variant.PackageJoins, "name the folder that it is in",
		variant.KeySelects, "--key selects one of ",
	).Replace(text)
}

// names reports whether the text of an error names a source, or a file in it.
func names(err error, name string) bool {
	shown := Shown(name)
	var named *Error
	var object *bucket.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &named):
		return named.source == shown || named.source == "" // the reason names it
	case errors.As(err, &object):
		return strings.HasPrefix(object.URL, shown)
	case errors.As(err, &path) && path.Path != ".":
		file, in := strings.CutPrefix(filepath.ToSlash(path.Path), strings.TrimRight(filepath.ToSlash(name), "/"))
		return in && (file == "" || file[0] == '/') || term.Name(path.Path) == shown
	}
	text := filepath.ToSlash(err.Error())
	if local, failed := localfile.Path(name); failed == nil && readFrom(text, term.Name(filepath.Clean(local))) {
		return true
	}
	return readFrom(text, shown)
}

// readFrom reports whether the text of an error begins with the name of a source, or of a file in it, or has it after
// the name of a tensor: such are the errors of reading a metered file. shown is the name as term.Name returns it.
func readFrom(text, shown string) bool {
	shown, quote := strings.TrimRight(filepath.ToSlash(shown), "/"), ""
	if strings.HasPrefix(shown, `"`) { // the name of a file in the source is quoted as a whole
		shown, quote = strings.TrimSuffix(shown, `"`), `"`
	}
	for _, before := range []string{"", "\": ", "\" of "} { // a name of a tensor is quoted
		_, after, found := strings.Cut(text, before+shown)
		starts := before != "" || strings.HasPrefix(text, shown)
		if found && starts && (strings.HasPrefix(after, quote+": ") || strings.HasPrefix(after, "/")) {
			return true
		}
	}
	return false
}

// Shown returns the name of a source for a message. It quotes the name, and removes user and query
// from a URL, because they may contain passwords and signatures.
func Shown(name string) string { return term.Name(Bare(name)) }

// Word returns the name of a source as a word of a command line, without user and query.
func Word(name string) string { return term.FileWord(Bare(name)) }

// Bare removes user and query from a name that is a URL.
func Bare(name string) string {
	if scheme, rest, ok := strings.Cut(name, "://"); ok {
		rest, _, _ = strings.Cut(rest, "?")
		host, path, slash := strings.Cut(rest, "/")
		if at := strings.LastIndexByte(host, '@'); at >= 0 && scheme != "hf" {
			host = host[at+1:]
		}
		if name = scheme + "://" + host; slash {
			name += "/" + path
		}
	}
	return name
}

// An Error is an error about a source.
type Error struct {
	source string // name of the source as Shown returns it; "" if Reason names the source
	Reason error
	err    error
}

func (e *Error) Unwrap() error { return e.err }

func (e *Error) Error() string {
	if e.source == "" {
		return e.Reason.Error()
	}
	return e.source + ": " + e.Reason.Error()
}

// IsFault reports whether an error comes from the system or from a bucket. It is false for an error
// about the content of a file, and for a file that does not exist.
func IsFault(err error) bool {
	system := errors.As(err, new(syscall.Errno)) || errors.As(err, new(*bucket.Error))
	return system && !errors.Is(err, fs.ErrNotExist)
}
