package checkpoint

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// maxLinks is the number of links that a name may go through.
const maxLinks = 40

// blobOfHub matches the targets of links that huggingface_hub makes: blobs in its cache, which are named by their
// sums. The link is in a snapshot of the same repository or, from older versions, in any directory.
var blobOfHub = lazyregexp.New(`^(?:(?:\.\./){2,}|.*/models--[^/]+/)blobs/(?:[0-9a-f]{40}|[0-9a-f]{64})$`)

// A linkReader is a file system that may have symbolic links. Go 1.25 names this interface fs.ReadLinkFS.
type linkReader interface {
	ReadLink(name string) (string, error)
}

// leaves reports whether a name in a directory goes through a symbolic link that leads out of the directory, and
// returns the target of that link. Such a link is absolute, or has too many "..". Links to blobs of the cache of
// huggingface_hub do not count. If the file system is not a linkReader, leaves returns false: the file system has
// no links, or decides by itself which ones it follows.
func leaves(in osfile.Tree, dir, name string) (to string, is bool) {
	reader, ok := in.FS.(linkReader)
	if !ok {
		return "", false
	}
	done, rest := ".", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part != "..":
		case done == ".":
			return to, true
		default: // the parent of the directory to which the links so far have led
			done = path.Dir(done)
			continue
		}
		target, err := reader.ReadLink(in.Join(dir, path.Join(done, part)))
		if err != nil {
			done = path.Join(done, part) // part is not a link, or does not exist
			continue
		}
		abs := filepath.IsAbs(target)
		to = filepath.ToSlash(target)
		if blobOfHub().MatchString(to) {
			return "", false
		}
		if links++; abs || path.IsAbs(to) || links > maxLinks {
			return to, true
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return "", false
}

// leavesError returns the error for a link that leads out of a directory, to this target.
func leavesError(to string) error {
	return &linkError{to}
}

// A linkError reports the target of a link that leads out of its directory.
type linkError struct{ to string }

func (e *linkError) Error() string {
	return "is a link that leads out of the directory, to " + quoted(e.to)
}

// refuseLinks returns an error if a file with weights is a link that leads out of the directory.
func refuseLinks(in osfile.Tree, dir string, l listing) error {
	for _, name := range l.names {
		if l.modes[name]&fs.ModeSymlink == 0 || !isWeights(name) && name != itemMetadata {
			continue
		}
		if to, is := leaves(in, dir, name); is {
			return prefix.OpenError(in.Join(dir, name), leavesError(to))
		}
	}
	return nil
}
