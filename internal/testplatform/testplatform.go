// Package testplatform says what tests need that not every platform has: one
// place for all systems, and for the emulators in which .ci/run runs them.
//
// A platform is skipped by its name, not because something failed on it: what
// breaks on any other platform is a failure.
package testplatform

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
)

const (
	js   = runtime.GOOS == "js"
	wasi = runtime.GOOS == "wasip1"

	// Maps is whether files can be mapped.
	Maps = !js && !wasi && runtime.GOOS != "plan9"

	// ReplacesOpenFiles is whether files that are open can be replaced and removed.
	ReplacesOpenFiles = runtime.GOOS != "windows"

	// MissesEmptyName is whether fs.ErrNotExist is the error of opening "".
	MissesEmptyName = !js && !wasi
)

// emulated reports whether this process runs in qemu-user, which cannot hide the
// name of its own process.
func emulated() bool {
	name, err := os.ReadFile("/proc/self/comm")
	return err == nil && bytes.HasPrefix(name, []byte("qemu-"))
}

// RaceEnabled reports whether this test binary has the race detector, which slows it down
// and allocates.
var RaceEnabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// Allocated returns the bytes that f allocates, and others meanwhile.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Torch returns the Python with PyTorch that SAFETENSORS_TORCH names by its absolute path.
// Without one the test is skipped, or fails if SAFETENSORS_REQUIRE_TORCH is 1.
func Torch(t testing.TB) string {
	t.Helper()
	python := os.Getenv("SAFETENSORS_TORCH")
	if python == "" {
		const message = "SAFETENSORS_TORCH names no Python with PyTorch (pip install -r testdata/requirements-torch.txt)"
		if os.Getenv("SAFETENSORS_REQUIRE_TORCH") == "1" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	return python
}

// NeedModes skips a test of the permissions of files.
func NeedModes(t testing.TB) {
	t.Helper()
	switch runtime.GOOS {
	case "windows", "plan9", "wasip1":
		t.Skip("files have no permissions, or not all of them, on this system")
	}
}

// NeedProcesses skips a test that starts its own program.
func NeedProcesses(t testing.TB) {
	t.Helper()
	switch {
	case js || wasi:
		t.Skip("no processes on this system")
	case emulated():
		t.Skip("a program for another processor cannot start itself")
	}
}

// MakePipe makes a named pipe that nobody writes to, or skips the test.
func MakePipe(t testing.TB, name string) {
	t.Helper()
	mkfifo, err := exec.LookPath("mkfifo")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("no named pipes on this system")
	}
	if out, err := exec.Command(mkfifo, name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// NeedTruncation skips a test that truncates a mapped file and has the fault of
// touching it caught.
func NeedTruncation(t testing.TB) {
	t.Helper()
	switch {
	case !slices.Contains([]string{"linux", "darwin", "freebsd"}, runtime.GOOS):
		t.Skip("a mapped file cannot be truncated on this system")
	case emulated():
		t.Skip("qemu passes the address of a fault on wrongly: as 0, or with its halves swapped")
	}
}

// NeedSymlinks skips a test that follows symbolic links. On Windows they need a
// privilege, and wine only says that it made one; WASI leaves them to the runtime.
func NeedSymlinks(t testing.TB) {
	t.Helper()
	if !HasSymlinks(t) {
		t.Skip("no symbolic links on this system")
	}
}

// HasSymlinks reports whether files can be opened by symbolic links.
func HasSymlinks(t testing.TB) bool {
	t.Helper()
	if !wasi && runtime.GOOS != "windows" && runtime.GOOS != "plan9" {
		return true
	}
	link := filepath.Join(t.TempDir(), "link")
	if os.Symlink(t.TempDir(), link) != nil {
		return false
	}
	info, err := os.Stat(link)
	return err == nil && info.IsDir()
}

// Long reports whether tests are to take the largest sizes and all of their rounds,
// which .ci/run long does with SAFETENSORS_LONG=1. It runs those whose own text calls
// Long: a test does not call it by way of another function.
func Long() bool { return os.Getenv("SAFETENSORS_LONG") == "1" && !testing.Short() }
