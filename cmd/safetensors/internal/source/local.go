package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// orURL returns err. If err means that no such file exists, orURL adds the URL of a server that name may stand for, or
// else a file with a similar name, or else a repository on the hub.
func orURL(name string, err error) error {
	path, ok := err.(*fs.PathError)
	if !ok || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, owner := os.Stat(filepath.Dir(name))
	onHub := hubName(name)
	if onHub == "" && errors.Is(owner, fs.ErrNotExist) && repository().MatchString(name) {
		onHub = "hf://" + name
	}
	near := NearFile(name)
	switch {
	case address().MatchString(name):
		path.Err = fmt.Errorf("%w; if this is the address of a server: http://%s", path.Err, name)
	case oneSlash().MatchString(name):
		path.Err = fmt.Errorf("%w; a URL has two slashes: %s", path.Err, oneSlash().ReplaceAllString(name, "$1://"))
	case near != "":
		path.Err = fmt.Errorf("%w, did you mean %s?", path.Err, term.FileWord(near))
	case onHub != "":
		path.Err = fmt.Errorf("%w; on the hub it is %s", path.Err, onHub)
	}
	return err
}

// repository matches names that a repository on the hub may have.
var repository = lazyregexp.New(`^[\w-][\w.-]*/[\w-][\w.-]*$`)

// address matches the host and the port of a URL whose scheme was left out.
var address = lazyregexp.New(`^[\w.-]+:\d{1,5}(/|$)`)

// oneSlash matches the scheme of a URL that has one slash instead of two, or none, as the remotes of rclone.
var oneSlash = lazyregexp.New(`^(https?|s3|gs|azblob):/?`)

// NearFile returns the file that a name may stand for if no such file exists: the one with the ending .safetensors, or the
// one in the same folder whose name is the most similar. It looks for a folder that does not exist in the same way; that
// folder must have a file of the given name. NearFile returns "" if there is no such file.
func NearFile(name string) string {
	name = filepath.Clean(name)
	if dir := filepath.Dir(name); dir != name && !exists(dir) {
		folder := NearFile(dir)
		if near := filepath.Join(folder, filepath.Base(name)); folder != "" && exists(near) {
			return near
		}
		return ""
	}
	if near := name + ".safetensors"; exists(near) {
		return near
	}
	return nearEntry(name)
}

// exists reports whether a local file exists.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// nearEntry returns the file in the folder of a name whose own name is the most similar. It returns "" if none is similar
// enough, or if the folder has very many files. The limit depends on the name without its ending, because two names often
// have the same ending.
func nearEntry(name string) string {
	const most = 10_000
	dir, err := os.Open(filepath.Dir(name) + "/.") // a pipe, on which opening would wait, has no such name
	if err != nil {
		return ""
	}
	defer dir.Close()
	entries, err := dir.Readdirnames(most + 1)
	if err != nil || len(entries) > most {
		return ""
	}
	slices.Sort(entries)
	base := filepath.Base(name)
	limit := len(strings.TrimSuffix(base, filepath.Ext(base)))/3 + 1
	best := ""
	for _, entry := range entries {
		if d := pattern.Distance(strings.ToLower(base), strings.ToLower(entry), limit); d < limit {
			best, limit = entry, d
		}
	}
	if best == "" || best == base { // best is base if name is a link that leads nowhere
		return ""
	}
	return filepath.Join(filepath.Dir(name), best)
}

// hubPage matches the URLs that people copy from a browser, or mistype for hf://.
var hubPage = lazyregexp.New(`^(?:hf:/?|(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/)([\w-][\w.-]*/[\w-][\w.-]*)(?:/(?:tree|blob)/([^/?#]+)(/[^?#]*)?)?/?$`)

// hubName returns the hf:// URL for the page of a repository, or of a file in it. It returns "" for
// any other name.
func hubName(name string) string {
	m := hubPage().FindStringSubmatch(name)
	if m == nil || strings.HasPrefix(m[1], "api/") || strings.HasPrefix(m[1], "datasets/") || strings.HasPrefix(m[1], "spaces/") {
		return ""
	}
	if m[2] != "" && m[2] != "main" {
		m[1] += "@" + m[2]
	}
	return "hf://" + m[1] + strings.TrimRight(m[3], "/")
}

// openLocal opens a file, an index or a folder. It reads files, and does not map them: the pages of
// a mapping count as memory of the process, and canceling the context could not end reading them.
func (o *Opener) openLocal(c *Checkpoint, name string) error {
	info, err := osfile.Stat(name)
	switch {
	case err != nil:
		return orURL(name, err)
	case info.IsDir():
		return o.openIn(c, o.Session.Local(name), ".")
	case info.Mode().IsRegular():
		dir, base := filepath.Split(name)
		return o.openIn(c, o.Session.Local(dir), base)
	case info.Mode()&fs.ModeNamedPipe == 0:
		return errNoPipe
	case o.Variant != "":
		return errNoVariants
	case o.Local: // reading a pipe to which nobody writes would never end
		return errNotLocal
	}
	f, err := localfile.OpenNamed(o.Context, name) // a pipe, such as <(curl …)
	if err != nil {
		return err
	}
	defer f.Close()
	return o.openStream(c, f)
}

// errNoPipe is the error for devices and sockets: only a pipe is copied to a temporary file.
var errNoPipe = errors.New("neither a file, nor a folder, nor a pipe")

// openStream opens a stream that can only be read once, from start to end. It copies the stream to
// a temporary file, because the tensors are needed in another order.
func (o *Opener) openStream(c *Checkpoint, r io.Reader) error {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			c.Files = []storage.File{o.OfReader("-", f, info.Size())}
			return o.openReader(c, o.Meter(f, "-"), info.Size(), "")
		} else if err == nil && info.Mode()&fs.ModeDevice != 0 { // /dev/zero never ends
			return errNoPipe
		}
	}
	temp, size, err := o.Spool(r, -1)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, temp.Close)
	if size == 0 {
		return errors.New("the pipe is empty: the program that writes to it has written nothing")
	}
	c.Files = []storage.File{o.OfReader("-", temp, size)}
	return o.openReader(c, o.Meter(temp, storage.Shown(c.Name)), size, "")
}
