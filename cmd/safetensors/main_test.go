package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// program is this test, which runs the command where the environment says so: it
// needs no compiler then, and the race detector sees the command.
var program = must(os.Executable())

const asCommand = "SAFETENSORS_TEST_COMMAND"

// raceDetector reports whether the race detector is in this program.
var raceDetector bool

// statusFile names the file for what Linux says of the command at its end. Its rusage
// would say of its memory at least as much as this process has.
const statusFile = "SAFETENSORS_TEST_STATUS"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		limitGarbage()
		if name := os.Getenv(peakFile); name != "" {
			write := watchPeak(name)
			code := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
			write()
			os.Exit(code)
		}
		code := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
		if name := os.Getenv(statusFile); name != "" {
			status, _ := os.ReadFile("/proc/self/status")
			os.WriteFile(name, status, 0o666)
		}
		os.Exit(code)
	}
	os.Setenv(asCommand, "1")
	if signal.Ignored(syscall.SIGHUP) { // as under nohup: who catches a signal does not bequeath that it is ignored
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	os.Exit(m.Run())
}

// A result is what a run of the command did.
type result struct {
	stdout, stderr string
	code           int
}

// runs runs the command in the current folder, in this process: what it does to one that ends,
// or is killed, TestScripts and others see, which start program.
func runs(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(args, new(bytes.Reader), &out, &errs)
	return result{out.String(), errs.String(), code}
}

// programOf returns what a variable of the environment names, a program. Without it, the test is
// skipped.
func programOf(t *testing.T, variable string) string {
	t.Helper()
	name := os.Getenv(variable)
	if name == "" {
		t.Skip(variable + " names no program")
	}
	return name
}

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// succeeds runs the command and returns what it printed.
func succeeds(t *testing.T, args ...string) string {
	t.Helper()
	r := runs(t, args...)
	require.Equal(t, 0, r.code, "%q: %s", args, r.stderr)
	return r.stdout
}

// fails runs the command, requires an exit code and returns the message.
func fails(t *testing.T, code int, args ...string) string {
	t.Helper()
	r := runs(t, args...)
	require.Equal(t, code, r.code, "%q: %s%s", args, r.stdout, r.stderr)
	return r.stderr
}

func list(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// tree returns the contents of the files in a folder, and in those in it.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files[name] = string(must(os.ReadFile(filepath.Join(dir, name))))
		}
		return err
	})
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return files
}
