// Safetensors looks into checkpoints, checks, compares, converts, splits, merges and
// copies them: files and folders of this machine, of hubs, of web servers and of
// buckets. See doc/command.md of the repository.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
