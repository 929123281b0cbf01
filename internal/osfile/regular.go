package osfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// OpenRegular opens a regular file and returns its size in bytes. It never waits for the writer of
// a named pipe. It checks the kind of the file before it opens it, since opening a device can have
// effects.
func OpenRegular(name string) (*os.File, int64, error) {
	info, err := FS{}.Stat(name)
	if err == nil {
		err = checkRegular("open", name, info)
	}
	if err != nil {
		return nil, 0, err
	}
	return openNow(name)
}

// openNow opens a file that was regular, but may have been replaced since.
func openNow(name string) (*os.File, int64, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noWait, 0)
	return regular(name, f, err)
}

// OpenFS opens a regular file of an fs.FS and returns its size in bytes. If the file system has
// symbolic links, OpenFS checks the kind of the file before it opens it, since opening a named pipe
// waits for its writer. A file system without links has no pipes, and a check in advance might cost
// a request there.
func OpenFS(fsys fs.FS, name string) (fs.File, int64, error) {
	_, checks := fsys.(FS) // Open of an FS checks the kind itself
	if _, linked := fsys.(linkReader); linked && !checks {
		info, err := StatFS(fsys, name)
		switch {
		case err == nil:
			err = checkRegular("open", name, info)
		case errors.Is(err, fs.ErrNotExist):
			err = nil // opening the file will return the error
		}
		if err != nil {
			return nil, 0, err
		}
	}
	f, err := fsys.Open(name)
	return regular(name, f, err)
}

// A linkReader is a file system that may have symbolic links. Go 1.25 names this interface
// fs.ReadLinkFS, with Lstat.
type linkReader interface {
	ReadLink(name string) (string, error)
}

// StatFS is like fs.Stat, but opens files less often: fs.Stat opens a file if the file system has
// no method Stat, such as those of fs.Sub. If such a file system has Lstat and ReadLink, StatFS
// follows the links itself, and opens nothing. A link that leads out of such a file system is an
// error, because its target might be a named pipe. The exception is a blob in the cache of a hub.
func StatFS(fsys fs.FS, name string) (fs.FileInfo, error) {
	links, ok := fsys.(interface {
		linkReader
		Lstat(string) (fs.FileInfo, error)
	})
	if _, stats := fsys.(fs.StatFS); !ok || stats {
		return fs.Stat(fsys, name)
	}
	if info, err := links.Lstat(name); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return info, err
	}
	at, to, leaves := Follow(links.ReadLink, name)
	switch {
	case !leaves:
		return links.Lstat(at)
	case IsBlob(to):
		return fs.Stat(fsys, name)
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fmt.Errorf("is a link that leads out of the directory, to %.200q", to)}
}

// Follow follows the symbolic links that a slash-separated name goes through. The func readLink returns
// the target of a link, or an error if the name is not that of a link. Follow returns a name that goes
// through no link. If a link leads out of the directory to which name is relative, or if there are too
// many links, leaves is true, and to is the target of the link.
func Follow(readLink func(name string) (string, error), name string) (at, to string, leaves bool) {
	const maxLinks = 40 // as many as Linux follows
	at = "."
	rest := strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part != "..":
		case at == ".":
			return "", to, true
		default: // the parent of the directory to which the links so far have led
			at = path.Dir(at)
			continue
		}
		target, err := readLink(path.Join(at, part))
		if err != nil {
			at = path.Join(at, part) // part is not a link, or does not exist
			continue
		}
		abs := filepath.IsAbs(target)
		to = filepath.ToSlash(target)
		if links++; abs || path.IsAbs(to) || links > maxLinks {
			return "", to, true
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return at, "", false
}

// blobOfHub matches the targets of links that huggingface_hub makes: blobs in its cache, which are named by
// their sums. The link is in a snapshot of the same repository or, from older versions, in any directory.
var blobOfHub = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(?:\.\./){2,}|.*/models--[^/]+/)blobs/(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
})

// IsBlob reports whether the slash-separated target of a link is a blob in the cache of a hub.
func IsBlob(target string) bool { return blobOfHub().MatchString(target) }

// regular returns f and its size in bytes. If f is not a regular file, it closes f and returns an
// error.
func regular[F fs.File](name string, f F, err error) (F, int64, error) {
	var none F
	if err != nil {
		return none, 0, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkRegular("open", name, info)
	}
	if err != nil {
		f.Close()
		return none, 0, err
	}
	return f, info.Size(), nil
}

// FS is a file system of the regular files and the folders of the operating system, with names of
// the operating system.
type FS struct{}

func (FS) Stat(name string) (fs.FileInfo, error) {
	info, err := os.Stat(name)
	return info, explain(name, err)
}

func (FS) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(name)
	return entries, explain(name, err)
}

func (FS) ReadLink(name string) (string, error) { return os.Readlink(name) }

func (FS) Open(name string) (fs.File, error) {
	f, _, err := OpenRegular(name)
	if err != nil {
		return nil, err // not a nil *os.File, which would be an fs.File that is not nil
	}
	return f, nil
}

// openers maps the scheme of a URL to the package that opens such URLs, and its purpose.
var openers = map[string]string{
	"hf":   "hub opens models of a hub",
	"http": "remote opens files of web servers", "https": "remote opens files of web servers",
}

// explain returns err, the error of finding a file of the operating system. If the file does not
// exist because a link leads nowhere, the error names the link: the file itself, or a folder above it. If name is
// a URL, the error names the package that opens it.
func explain(name string, err error) error {
	missing, ok := err.(*fs.PathError)
	if scheme, _, isURL := strings.Cut(name, "://"); ok && isURL && openers[scheme] != "" {
		return &fs.PathError{Op: missing.Op, Path: missing.Path, Err: fmt.Errorf("%w (package %s)", missing.Err, openers[scheme])}
	}
	if !ok || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	link, at := "it", name
	to, notLink := os.Readlink(at)
	for notLink != nil {
		above := filepath.Dir(at)
		if above == at {
			return err
		}
		link, at = above, above
		to, notLink = os.Readlink(at)
	}
	if _, absent := os.Stat(at); !errors.Is(absent, fs.ErrNotExist) {
		return err
	}
	return &fs.PathError{Op: missing.Op, Path: missing.Path, Err: &brokenLinkError{link, to, missing.Err}}
}

// A brokenLinkError reports that a file does not exist because a link leads nowhere.
type brokenLinkError struct {
	link string // the link, or "it" for the file itself
	to   string // the target of the link
	err  error
}

func (e *brokenLinkError) Unwrap() error { return e.err }

func (e *brokenLinkError) Error() string {
	to := e.to
	if strings.ContainsFunc(to, unicode.IsControl) { // the link may come from a stranger's archive
		to = strconv.Quote(to)
	}
	return fmt.Sprintf("%s is a link to %s, which does not exist", e.link, to)
}

// A Tree is a file system in which files are opened: that of the operating system, or an fs.FS.
type Tree struct {
	FS   fs.FS
	Join func(...string) string // joins the name of a folder with a local, slash-separated name or ..
}

// OS is the Tree of the operating system.
var OS = Tree{FS{}, filepath.Join}

// TreeOf returns the Tree of an fs.FS. It checks name, which will be opened in it.
func TreeOf(fsys fs.FS, name string) (Tree, error) {
	var err error
	switch {
	case fsys == nil:
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("the fs.FS is nil")}
	case !fs.ValidPath(name):
		err = &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("%w: a name in an fs.FS is relative to its root, without empty, . or .. elements", fs.ErrInvalid)}
	}
	return Tree{fsys, path.Join}, err
}

// IsDir reports whether there is a folder with this name. It is not an error if the name does not
// exist, or if the file system has no Stat.
func (t Tree) IsDir(name string) (bool, error) {
	info, err := StatFS(t.FS, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		return false, nil // opening the file will return the error
	}
	return err == nil && info.IsDir(), err
}

// ReadRegular returns the content of a regular file of the operating system. A file of more than
// max bytes is an error.
func ReadRegular(name string, max int64) ([]byte, error) { return OS.ReadRegular(name, max) }

// ReadRegular returns the content of a regular file. A file of more than max bytes is an error. It
// checks the kind of the file before it opens it, as OpenRegular does.
func (t Tree) ReadRegular(name string, max int64) ([]byte, error) {
	info, err := StatFS(t.FS, name)
	if err == nil {
		err = checkRegular("open", name, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := t.FS.Open(name)
	f, _, err = regular(name, f, err)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(data)) > max {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes", max)}
	}
	return data, err
}

// checkRegular returns an error that names the kind of a file, unless the file is regular.
func checkRegular(op, name string, info fs.FileInfo) error {
	kind := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	}
	return &fs.PathError{Op: op, Path: name, Err: errors.New("is " + kind)}
}
