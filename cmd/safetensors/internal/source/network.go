package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/remote"
)

// silence is how long a server may send nothing. Package remote waits less, and asks again.
var silence = time.Minute

var errSilent = errors.New("the connection stalled")

// client returns a client whose answers are counted, and end when the server is silent.
func (o *Opener) client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 32 // package remote has 20 requests in flight
	return &http.Client{Transport: counting{transport, o}, CheckRedirect: withoutToken}
}

// withoutToken keeps what authorizes a request from other hosts. Package http would send it to
// subdomains, and to other ports.
func withoutToken(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirects")
	}
	first := via[0].URL
	for _, r := range append(via[1:len(via):len(via)], req) {
		if r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
			req.Header.Del("Authorization")
		}
	}
	return nil
}

// counting counts the bytes of all answers.
type counting struct {
	http.RoundTripper
	o *Opener
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	b := &countedBody{o: c.o, ctx: ctx, cancel: cancel}
	b.watch = time.AfterFunc(silence, func() { cancel(errSilent) })
	resp, err := c.RoundTripper.RoundTrip(req.WithContext(ctx))
	b.watch.Stop()
	if err != nil {
		defer cancel(nil)
		return nil, b.cause(err)
	}
	b.ReadCloser, resp.Body = resp.Body, b
	return resp, nil
}

// A countedBody is the body of an answer. The limit of silence holds only during a Read:
// a slow reader is no silent server.
type countedBody struct {
	io.ReadCloser
	o      *Opener
	ctx    context.Context
	cancel context.CancelCauseFunc
	watch  *time.Timer // cancels after silence
}

func (b *countedBody) Read(p []byte) (int, error) {
	b.watch.Reset(silence)
	n, err := b.ReadCloser.Read(p)
	b.watch.Stop()
	b.o.read.Add(int64(n))
	return n, b.cause(err)
}

func (b *countedBody) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}

func (b *countedBody) cause(err error) error {
	if err != nil && err != io.EOF && context.Cause(b.ctx) == errSilent {
		return errSilent
	}
	return err
}

func (o *Opener) openURL(c *Checkpoint, name string) error {
	base := ""
	if u, err := url.Parse(name); err == nil {
		if base = path.Base(u.Path); isForeign(u.Path) {
			return o.openAway(c, base, o.besides(u))
		}
	}
	client := o.client()
	seen := &answers{RoundTripper: client.Transport, last: make(map[string]http.Header)}
	if o.Pin {
		client.Transport = seen
	}
	f, err := (&remote.Client{HTTP: client}).Open(o.Context, name)
	if err != nil {
		return err
	}
	c.take(f)
	if IsIndex(base) {
		if c.Layout, err = layoutAway(f, base, nil); err != nil {
			return err
		}
	}
	if o.Pin {
		return o.pinURL(c, name, f, seen)
	}
	return nil
}

// openHub opens hf://OWNER/NAME[@REVISION][/FILE], from the cache of the Python
// tools if it is there.
func (o *Opener) openHub(c *Checkpoint, name string) error {
	repo, revision, file, err := splitHub(name)
	if err != nil {
		return err
	}
	if dir, err := hub.CacheDir(repo, revision); err == nil {
		c.pins = []Pin{{Name: path.Join(repo, file), Tag: filepath.Base(dir)}} // a commit
		err := o.openLocal(c, filepath.Join(dir, filepath.FromSlash(file)))
		if !errors.Is(err, fs.ErrNotExist) { // else it is not all of the repository
			return err
		}
	}
	if o.Local {
		return errNotLocal
	}
	if o.Variant != "" {
		return errors.New("a variant is selected in folders only, and this is not in the cache: name its file")
	}
	var listed map[string]HubFile
	if o.Pin || o.Whole {
		snapshot, err := o.snapshot(repo, revision)
		switch {
		case err == nil:
			revision = snapshot.Commit
			c.pins = []Pin{{Name: path.Join(repo, file), Tag: revision}}
			if o.Whole {
				listed, _ = hubFiles(snapshot) // without all sums, files are read as tensors
			}
		case o.Pin || o.Context.Err() != nil:
			return err
		}
	}
	c.Folder = o.repoFolder(repo, revision, file)
	if isForeign(file) {
		return o.openAway(c, path.Base(file), o.inRepo(repo, revision, path.Dir(file)))
	}
	f, err := o.openRepo(repo, revision, file)
	if path.Ext(file) != ".safetensors" && errors.Is(err, fs.ErrNotExist) {
		for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "adapter_model.bin"} {
			away := o.openAway(c, name, o.inRepo(repo, revision, file))
			if !errors.Is(away, fs.ErrNotExist) {
				return away
			}
		}
	}
	if err != nil {
		return err
	}
	c.take(f)
	if path.Ext(file) != ".safetensors" {
		c.Layout, err = o.layoutInRepo(f, repo, revision, file, c.Folder, listed)
	}
	return err
}

// openRepo opens a file or a folder of a repository on the hub.
func (o *Opener) openRepo(repo, revision, file string) (*safetensors.File, error) {
	client := &hub.Client{HTTP: o.client()}
	switch {
	case file == "":
		return client.Open(o.Context, repo, revision)
	case format.ByName(file) != nil, strings.HasSuffix(file, ".index.json"): // of another format, too: the error says so
		return client.OpenFile(o.Context, repo, revision, file)
	}
	f, err := client.OpenFile(o.Context, repo, revision, file+"/model.safetensors")
	if errors.Is(err, fs.ErrNotExist) {
		f, err = client.OpenFile(o.Context, repo, revision, file+"/"+format.IndexFile)
	}
	return f, err
}

// splitHub takes hf://OWNER/NAME[@REVISION][/FILE] apart. A slash in a revision is
// written as %2F, but for refs/pr/N and refs/convert/NAME.
func splitHub(name string) (repo, revision, file string, err error) {
	parts := strings.SplitN(strings.TrimPrefix(name, "hf://"), "/", 3)
	if len(parts) < 2 || parts[0] == "" || parts[1] == "" {
		err := errors.New("is not hf://OWNER/NAME[@REVISION][/FILE]")
		return "", "", "", &Error{Shown(name), err, err}
	}
	if len(parts) == 3 {
		file = strings.Trim(parts[2], "/")
	}
	if file != "" && !fs.ValidPath(file) { // which would lead out of the repository
		return "", "", "", fmt.Errorf("%q does not name a file in a repository", file)
	}
	base, revision, _ := strings.Cut(parts[1], "@")
	if revision == "refs" {
		ref := strings.SplitN(file, "/", 3)
		if len(ref) < 2 || ref[0] != "pr" && ref[0] != "convert" {
			return "", "", "", fmt.Errorf("%q: a revision is a branch, a tag, a commit, refs/pr/N or refs/convert/NAME", name)
		}
		revision, file = "refs/"+ref[0]+"/"+ref[1], strings.Join(ref[2:], "/")
	}
	revision = strings.NewReplacer("%2F", "/", "%2f", "/").Replace(revision)
	return parts[0] + "/" + base, revision, file, nil
}

// openBucket opens an object, the index of several, or a folder of objects.
func (o *Opener) openBucket(c *Checkpoint, name string) error {
	b, key, err := bucket.Open(o.Context, name)
	if err != nil {
		return err
	}
	switch path.Ext(key) {
	case ".safetensors", ".json":
		dir, base := path.Split(key)
		c.Folder = folderOf(b.FS(strings.TrimSuffix(dir, "/")))
		return o.openIn(c, b.FS(strings.TrimSuffix(dir, "/")), base, nil)
	}
	fsys := b.FS(key)
	info, err := fs.Stat(fsys, ".")
	if err != nil {
		return err
	}
	if info.IsDir() {
		c.Folder = o.wholeFolder(fsys)
		return o.openIn(c, fsys, ".", nil)
	}
	if o.Variant != "" {
		return errNoVariants
	}
	f, err := fsys.Open(".")
	if err != nil {
		return err
	}
	file := o.wholeFile(path.Base(key), f.(io.ReaderAt), info.Size())
	file.Tag = tagOf(info)
	c.Files = []File{file}
	return o.openReader(c, o.meter(f.(io.ReaderAt)), info.Size(), key)
}
