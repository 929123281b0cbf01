// Safetensors inspects, checks, compares, converts, splits, merges and copies checkpoints: files
// and folders of this machine, of hubs, of web servers and of buckets. See doc/command.md of the
// repository.
package main

import (
	"os"
	"runtime/debug"
)

// gcPercent is the target of the garbage collector, unless GOGC sets another one. The memory of a
// job consists of a few large buffers, and the default target would double it.
const gcPercent = 25

func main() {
	limitGarbage()
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
