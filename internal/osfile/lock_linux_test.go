package osfile

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestUnlockWithChild: a process that is being started has its parent's files until it runs
// its program. It does not keep the lock.
func TestUnlockWithChild(t *testing.T) {
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	unlock := must(system.Lock(dir))
	_, err := system.Lock(dir)
	require.Equal(t, ErrLocked, err)
	files := must(os.ReadDir("/proc/self/fd"))
	i := slices.IndexFunc(files, func(e os.DirEntry) bool {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		return err == nil && to == dir
	})
	inherited := must(unix.Dup(must(strconv.Atoi(files[i].Name()))))
	defer unix.Close(inherited)
	unlock()
	unlock, err = system.Lock(dir)
	require.NoError(t, err)
	unlock()
}
