//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
)

const fileSizeLimit = "SAFETENSORS_TEST_FILE_SIZE"

// limitFileSize makes the system refuse what a file would hold beyond that size, as a
// full disk does.
func limitFileSize() {
	if n, err := strconv.ParseUint(os.Getenv(fileSizeLimit), 10, 63); err == nil {
		limit := syscall.Rlimit{Cur: n, Max: n}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
	}
}
