//go:build !unix

package osfile

const noWait = 0 // no named pipes among the files
