package osfile

import "errors"

// ErrLocked is the error of a System for a folder that somebody else has locked.
var ErrLocked = errors.New("somebody else has locked it")

// Lock locks a folder, for all that lock it, until unlock is called or the process
// ends. It reports false if it is locked already. Where the file system has no locks,
// or shows them to one machine only, it keeps nobody out.
func Lock(dir string) (unlock func(), ok bool) {
	l, err := system.Lock(dir)
	switch {
	case errors.Is(err, ErrLocked):
		return nil, false
	case err != nil:
		return func() {}, true
	}
	return func() { l.Close() }, true
}
