package storage

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// Named puts the name of a source before an error that does not have it yet. If the context has
// ended, the cause of that is the error.
func (s *Session) Named(name string, err error) error {
	if cause := context.Cause(s.Context); cause != nil {
		return cause
	}
	reason, shown := term.Bare(err), Shown(name)
	if path, ok := reason.(*fs.PathError); ok {
		if _, twice := path.Err.(*fs.PathError); twice || path.Path == name || path.Path == "." { // the folder that it is
			reason = path.Err
		}
	}
	if names(reason, name) {
		shown = ""
	}
	return &Error{shown, reason, err}
}

// names reports whether an error names a source, or a file in it.
func names(err error, name string) bool {
	shown := Shown(name)
	var named *Error
	var object *bucket.Error
	var path *fs.PathError
	switch {
	case errors.As(err, &named):
		return named.source == shown
	case errors.As(err, &object):
		return strings.HasPrefix(object.URL, shown)
	case errors.As(err, &path):
		file, in := strings.CutPrefix(filepath.ToSlash(path.Path), strings.TrimRight(filepath.ToSlash(name), "/"))
		return in && (file == "" || file[0] == '/') || term.Name(path.Path) == shown
	}
	return false
}

// Shown returns the name of a source for a message: quoted, and of a URL without user
// and query, where passwords and signatures are.
func Shown(name string) string {
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
	return term.Name(name)
}

// An Error says what is wrong with a source.
type Error struct {
	source string // as it is shown; "" if the reason names it
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
