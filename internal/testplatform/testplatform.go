// Package testplatform skips tests on platforms that lack a feature which the tests need. It covers
// all systems, and the emulators in which .ci/run runs the tests.
//
// The name of the platform decides whether a test is skipped. A failed operation does not: on a
// platform that is not named here, it fails the test.
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

	// Maps reports whether files can be mapped.
	Maps = !js && !wasi && runtime.GOOS != "plan9"

	// ReplacesOpenFiles reports whether open files can be replaced and removed.
	ReplacesOpenFiles = runtime.GOOS != "windows"

	// MissesEmptyName reports whether opening "" returns fs.ErrNotExist.
	MissesEmptyName = !js && !wasi
)

// emulated reports whether this process runs in qemu-user, which cannot hide the name of its own
// process.
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

// Allocated returns the number of bytes that were allocated while f ran, by f and by other
// goroutines.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Torch returns the Python interpreter with PyTorch whose absolute path SAFETENSORS_TORCH contains.
// Without it, the test is skipped, or fails if SAFETENSORS_REQUIRE_TORCH is 1.
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

// NeedModes skips a test of file permissions on systems that lack them.
func NeedModes(t testing.TB) {
	t.Helper()
	switch runtime.GOOS {
	case "windows", "plan9", "wasip1":
		t.Skip("files have no permissions, or not all of them, on this system")
	}
}

// NeedProcesses is for tests that start their own program. It skips the test on platforms where that
// is impossible.
func NeedProcesses(t testing.TB) {
	t.Helper()
	switch {
	case js || wasi:
		t.Skip("no processes on this system")
	case emulated():
		t.Skip("a program for another processor cannot start itself")
	}
}

// MakePipe makes a named pipe that has no writer, or skips the test.
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

// NeedTruncation skips a test that truncates a mapped file, and expects the fault of touching it to
// be caught.
func NeedTruncation(t testing.TB) {
	t.Helper()
	switch {
	case !slices.Contains([]string{"linux", "darwin", "freebsd"}, runtime.GOOS):
		t.Skip("a mapped file cannot be truncated on this system")
	case emulated():
		t.Skip("qemu passes the address of a fault on wrongly: as 0, or with its halves swapped")
	}
}

// NeedSymlinks skips a test that follows symbolic links. On Windows they need a privilege, and wine
// only claims to have made one. On WASI they depend on the runtime.
func NeedSymlinks(t testing.TB) {
	t.Helper()
	if !HasSymlinks(t) {
		t.Skip("no symbolic links on this system")
	}
}

// HasSymlinks reports whether a file can be opened through a symbolic link.
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

// Long reports whether tests should use the largest sizes and all of their rounds. That is so if
// SAFETENSORS_LONG is 1, which .ci/run long sets. That command runs only tests whose own source
// calls Long, so a test must not call Long through another function.
func Long() bool { return os.Getenv("SAFETENSORS_LONG") == "1" && !testing.Short() }

// Exhaustive reports whether the tests TestAll… should leave nothing out, which takes up to ten
// minutes for each. That is so if SAFETENSORS_EXHAUSTIVE is 1, which a workflow sets every week.
func Exhaustive() bool { return os.Getenv("SAFETENSORS_EXHAUSTIVE") == "1" && !testing.Short() }
