//go:build !unix

package localfile

const noWait = 0 // no named pipes among the files
