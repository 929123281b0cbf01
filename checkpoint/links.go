package checkpoint

import (
	"io/fs"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

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
	_, to, is = osfile.Follow(func(name string) (string, error) { return reader.ReadLink(in.Join(dir, name)) }, name)
	if is && osfile.IsBlob(to) {
		return "", false
	}
	return to, is
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
