package safetensors

import (
	"fmt"
	"io/fs"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Saver holds settings for files to be written. Its methods are like the funcs of the same
// names; the methods of the zero Saver are the same as these funcs. If a setting is invalid, the
// methods return an error, with nothing written. They may be called concurrently.
type Saver struct {
	// Mode is the permissions of new files before the umask, at most 0777: 0600 keeps
	// private data private. 0 means 0666. A file that replaces another one keeps the mode of
	// that file, without the permissions that Mode lacks. New directories have mode 0777
	// before the umask. On Windows, Mode has no effect.
	Mode fs.FileMode

	// Align is a power of two: the data buffer starts at a multiple of this number of bytes in
	// the file, after spaces at the end of the header, which every reader ignores. With 4096, the
	// data of a mapped file starts on a page. Tensors follow each other without gaps, whatever
	// Align is. 0 means 8, as the reference implementation writes files; smaller values have the
	// same effect.
	Align int

	// Check, if it is not nil, is called once all bytes of the new files are written and flushed, and
	// before the first of them gets its name. If it returns an error, the save fails with that error, and
	// leaves what was there before. A program whose tensors come from a file that others may change can
	// check here whether that file is still the one that it opened.
	Check func() error
}

// settings checks the settings and returns them in the form of package osfile. The tag becomes a
// part of temporary names.
func (s Saver) settings(tag string) (osfile.Settings, error) {
	switch {
	case s.Align < 0 || s.Align&(s.Align-1) != 0:
		return osfile.Settings{}, fmt.Errorf("an alignment of %d bytes is not a power of two", s.Align)
	case s.Mode&^fs.ModePerm != 0:
		return osfile.Settings{}, fmt.Errorf("the mode %#o has more than permissions", uint32(s.Mode))
	}
	return osfile.Settings{Tag: tag, Mode: s.Mode, Check: s.Check}, nil
}
