// Package localfile opens files of this machine that the command line names, including named pipes.
package localfile

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// OpenNamed opens a file that the command line names. If the file is a pipe, such as <(command),
// OpenNamed waits for its writer until ctx is done.
func OpenNamed(ctx context.Context, name string) (*os.File, error) {
	return Await(ctx, func() (*os.File, error) { return os.Open(name) })
}

// ReadNamed returns the content of a file that the command line names, which may be a pipe. A file
// of more than max bytes is an error.
func ReadNamed(ctx context.Context, name string, max int64) ([]byte, error) {
	f, err := OpenNamed(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := Await(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(f, max+1)) })
	if err == nil && int64(len(data)) > max {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("more than %d bytes", max)}
	}
	return data, err
}

// Await returns the results of f, or the cause of ctx once ctx is done. f may wait for a pipe or a
// terminal, which nothing can interrupt; then f continues until the program ends.
func Await[T any](ctx context.Context, f func() (T, error)) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
}

// Path returns the path that a file:// URL refers to on this system. It returns any other name
// unchanged.
func Path(name string) (string, error) {
	if !strings.HasPrefix(name, "file://") {
		return name, nil
	}
	u, err := url.Parse(name)
	if err != nil {
		return "", fmt.Errorf("%q is not a URL", name)
	}
	path := u.Path
	if runtime.GOOS == "windows" {
		if drive := strings.TrimPrefix(u.Host+path, "/"); len(drive) > 2 && drive[1] == ':' { // the URL is file:///C:/x or file://C:/x
			u.Host, path = "", drive
		}
	}
	switch {
	case u.Host != "" && u.Host != "localhost":
		return "", fmt.Errorf("%q is on another host; file:///PATH is a file of this one", name)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q: a file has no query; ? is spelled %%3F, and # %%23", name)
	case strings.Trim(path, "/") == "":
		return "", fmt.Errorf("%q names no file", name)
	}
	return filepath.FromSlash(path), nil
}
