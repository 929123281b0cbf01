package testplatform

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// HasUnnamedFiles reports whether a file in a folder can be created without a name, and get a name
// later. It creates a file in the folder to find out.
func HasUnnamedFiles(t testing.TB, dir string) bool {
	f, err := os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, 0o666)
	if err != nil {
		t.Logf("no unnamed files in %s: %v", dir, err)
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Mode()&0o002 != 0 {
		t.Logf("unnamed files in %s ignore the umask, or it is 0", dir)
		return false
	}
	name := filepath.Join(dir, "named-later")
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if err := unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW); err != nil {
		t.Logf("unnamed files in %s stay so: %v", dir, err)
		return false
	}
	return os.Remove(name) == nil
}
