// Safetensors inspects, checks, compares, converts, splits, merges and copies checkpoints: files
// and folders of this machine, of hubs, of web servers and of buckets. See doc/command.md of the
// repository.
package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

func main() {
	limitGarbage()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// limitGarbage lowers the target of the garbage collector, unless GOGC sets one: the memory of a
// job consists of a few large buffers, and the default target would double it. The lower target
// applies from the first collection on. If it applied at once, the collector would run as soon as
// the heap has 1 MB, which the packages of the clouds fill before main, and a short command such as ls
// would take a fifth longer.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		collected := new([64]byte)
		runtime.AddCleanup(collected, func(percent int) { debug.SetGCPercent(percent) }, 25)
	}
}

// run executes a command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return seams{}.run(args, stdin, stdout, stderr)
}

// seams are values that tests set. Each may be nil.
type seams struct {
	// parent is a context that interrupts the command as a signal does, once it is done.
	parent context.Context

	// through is the field Through of the storage.Session, which injects faults into file systems.
	through func(fs.FS) fs.FS

	// progressed is called at the end of work whose progress is shown, with the total number of bytes
	// that was announced, and the number of bytes that were read.
	progressed func(title string, total, read int64)
}

func (s seams) run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if s.parent == nil {
		s.parent = context.Background()
	}
	ctx, stop := interruptible(s.parent)
	defer stop()
	c := &command{ctx: ctx, args: args, out: bufio.NewWriter(stdout), stdout: stdout, stderr: stderr, seams: s}
	note := func(text string) { fmt.Fprintf(stderr, "safetensors: note: %s\n", term.Clean(text)) }
	c.opener = &source.Opener{Session: storage.Session{Context: ctx, Through: s.through, Downloading: note}, Stdin: stdin, Note: note}
	cmd, err := c.execute()
	err = cmp.Or(err, c.noVerb)
	if flushed := c.out.Flush(); err == nil && flushed != nil {
		c.begun, err = true, flushed // a failed write is not an error of the command line, even for --help
	}
	return c.exit(cmd, err)
}
