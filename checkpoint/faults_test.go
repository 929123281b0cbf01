package checkpoint_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// A faultyFS is a file system of which one operation fails: the one after left others.
type faultyFS struct {
	fs.FS
	left atomic.Int64
}

var errFaulty = errors.New("the network is down")

// fails counts an operation, and reports whether it fails.
func (f *faultyFS) fails() bool { return f.left.Add(-1) == -1 }

func (f *faultyFS) Open(name string) (fs.File, error) {
	if f.fails() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errFaulty}
	}
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

func (f *faultyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if f.fails() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errFaulty}
	}
	return fs.ReadDir(f.FS, name)
}

func (f *faultyFS) Stat(name string) (fs.FileInfo, error) {
	if f.fails() {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: errFaulty}
	}
	return fs.Stat(f.FS, name)
}

type faultyFile struct {
	fs.File
	fsys *faultyFS
}

func (f *faultyFile) Read(p []byte) (int, error) {
	if f.fsys.fails() {
		return 0, errFaulty
	}
	return f.File.Read(p)
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fsys.fails() {
		return 0, errFaulty
	}
	return f.File.(io.ReaderAt).ReadAt(p, off)
}

// TestEveryFault lets each operation of the file system fail in turn, in folders of every kind: the error comes
// out of Check, which then has no findings, and out of Models, Version and OpenFS, unless they read the same again
// and have the same result as without it. It never becomes a verdict on the files. If OpenFS fails even without it,
// its error may be the same or one that says less.
func TestEveryFault(t *testing.T) {
	dir, cases := corpus(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			fsys := os.DirFS(filepath.Join(dir, c.Name, filepath.FromSlash(c.Path)))
			for name, do := range map[string]func(fs.FS) (any, error){
				"Check":   func(fsys fs.FS) (any, error) { return checkpoint.Check(fsys, ".") },
				"Models":  func(fsys fs.FS) (any, error) { return checkpoint.Models(fsys, ".") },
				"Version": func(fsys fs.FS) (any, error) { return checkpoint.Version(fsys, ".") },
				"OpenFS": func(fsys fs.FS) (any, error) {
					f, err := checkpoint.OpenFS(fsys, ".")
					if err != nil {
						return nil, err
					}
					return f.Header(), f.Close()
				},
			} {
				want, sound := do(fsys)
				for n := int64(0); ; n++ {
					f := &faultyFS{FS: fsys}
					f.left.Store(n)
					got, err := do(f)
					if f.left.Load() >= 0 { // nothing failed
						break
					}
					if err == nil && sound == nil {
						require.Equal(t, want, got, "%s of %s, operation %d", name, c.What, n)
						continue
					}
					if name == "OpenFS" && sound != nil {
						require.Error(t, err, "%s of %s, operation %d", name, c.What, n)
						continue
					}
					require.ErrorIs(t, err, errFaulty, "%s of %s, operation %d", name, c.What, n)
					if name != "OpenFS" {
						require.Empty(t, got)
					}
				}
			}
		})
	}
}

// requireFaults lets each operation that Check and Version need fail in turn: the error comes out, and neither a finding
// nor a version.
func requireFaults(t *testing.T, fsys fs.FS) {
	t.Helper()
	for name, do := range map[string]func(fs.FS) (any, error){
		"Check":   func(fsys fs.FS) (any, error) { return checkpoint.Check(fsys, ".") },
		"Version": func(fsys fs.FS) (any, error) { return checkpoint.Version(fsys, ".") },
	} {
		for n := int64(0); ; n++ {
			f := &faultyFS{FS: fsys}
			f.left.Store(n)
			got, err := do(f)
			if f.left.Load() >= 0 { // nothing failed
				require.Positive(t, n)
				break
			}
			require.ErrorIs(t, err, errFaulty, "%s, operation %d", name, n)
			require.Empty(t, got, "%s, operation %d", name, n)
		}
	}
}
