package osfile

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// Lock creates a file that nobody else can open, and that goes with its handle.
func (osSystem) Lock(dir string) (unlock func(), err error) {
	name, err := windows.UTF16PtrFromString(filepath.Join(dir, TempPrefix+"lock"))
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(name, windows.GENERIC_WRITE, 0, nil, windows.OPEN_ALWAYS,
		windows.FILE_ATTRIBUTE_HIDDEN|windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
	if err == windows.ERROR_SHARING_VIOLATION {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return func() { windows.CloseHandle(h) }, nil
}
