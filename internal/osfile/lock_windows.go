package osfile

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// lockDir creates a file that no one else can open, and that is deleted when its handle is closed.
// Processes that share the lock can open it for reading; the last of them deletes it.
func lockDir(dir string, shared bool) (unlock func(), err error) {
	name, err := windows.UTF16PtrFromString(filepath.Join(dir, TempPrefix+"lock"))
	if err != nil {
		return nil, err
	}
	access, share, flags := uint32(windows.GENERIC_WRITE), uint32(0), uint32(windows.FILE_ATTRIBUTE_HIDDEN|windows.FILE_FLAG_DELETE_ON_CLOSE)
	if shared {
		access, share, flags = windows.GENERIC_READ, windows.FILE_SHARE_READ, windows.FILE_ATTRIBUTE_HIDDEN
	}
	h, err := windows.CreateFile(name, access, share, nil, windows.OPEN_ALWAYS, flags, 0)
	if err == windows.ERROR_SHARING_VIOLATION {
		return nil, ErrLocked
	}
	if err != nil {
		return nil, err
	}
	return func() {
		windows.CloseHandle(h)
		if shared {
			windows.DeleteFile(name) // fails while another process has it open
		}
	}, nil
}
