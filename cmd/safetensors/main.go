// Safetensors inspects, checks, compares, converts, splits, merges and copies checkpoints: files
// and folders of this machine, of hubs, of web servers and of buckets. See doc/command.md of the
// repository.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
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
