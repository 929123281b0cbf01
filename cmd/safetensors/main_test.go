package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// program is the command, built once for all tests.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "safetensors-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "safetensors")
		if runtime.GOOS == "windows" {
			program += ".exe"
		}
		build := exec.Command("go", "build", "-o", program, ".")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// A result is what a run of the command did.
type result struct {
	stdout, stderr string
	code           int
}

// runs runs the command in the current folder.
func runs(t *testing.T, args ...string) result {
	t.Helper()
	return runsWith(t, nil, args...)
}

// runsWith runs the command with a standard input.
func runsWith(t *testing.T, stdin []byte, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		require.NoError(t, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
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
