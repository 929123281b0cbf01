package dest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/stretchr/testify/require"
)

var errDisk = errors.New("the disk fails")

// A dying system opens folders that cannot be flushed, or opens none.
type dying struct {
	osfile.System
	opens bool
}

func (d dying) OpenDir(string) (osfile.Folder, error) {
	if d.opens {
		return d, nil
	}
	return nil, errDisk
}

func (dying) Sync() error  { return errDisk }
func (dying) Close() error { return nil }

// TestFlushFails: a folder that cannot be opened leaves the old file; one that cannot be
// flushed may be left with either, and the error says so.
func TestFlushFails(t *testing.T) {
	if runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		t.Skip("folders have no flush")
	}
	dir := t.TempDir()
	temp, name := filepath.Join(dir, "temp"), filepath.Join(dir, "name")
	for _, file := range []string{temp, name} {
		require.NoError(t, os.WriteFile(file, []byte(filepath.Base(file)), 0o666))
	}
	for _, opens := range []bool{false, true} {
		func() {
			defer osfile.Wrap(func(s osfile.System) osfile.System { return dying{s, opens} })()
			require.ErrorIs(t, rename(temp, name), errDisk)
		}()
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, map[bool]string{false: "name", true: "temp"}[opens], string(content))
	}
}
