package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"golang.org/x/sync/errgroup"
)

// FS returns a folder of the bucket as a file system. Its files are
// io.ReaderAts and safetensors.RangeReaders.
func (b *Bucket) FS(folder string) fs.FS { return fsys{b, folder} }

type fsys struct {
	b      *Bucket
	folder string
}

func (f fsys) key(name string) string {
	if name == "." {
		return f.folder
	}
	return path.Join(f.folder, name)
}

func (f fsys) Open(name string) (fs.File, error) {
	info, err := f.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a folder")}
	}
	return &object{info: info.(objectInfo), b: f.b, key: f.key(name)}, nil
}

func (f fsys) Stat(name string) (fs.FileInfo, error) {
	key := f.key(name)
	if key == "" {
		return objectInfo{name: ".", dir: true}, nil
	}
	a, err := f.b.store.head(f.b.ctx, key)
	if err == nil {
		return objectInfo{name: path.Base(key), attributes: a}, nil
	}
	err = f.b.fail(key, err)
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if entries, listErr := f.ReadDir(name); listErr != nil || len(entries) == 0 {
		return nil, err
	}
	return objectInfo{name: path.Base(key), dir: true}, nil
}

// ReadDir lists objects and folders. A folder without objects does not exist. A name that no
// file should have, such as one with a newline, is an error. What was written before is among
// them: the stores have consistent lists, S3 since 2020.
func (f fsys) ReadDir(name string) (entries []fs.DirEntry, err error) {
	folder := f.key(name)
	prefix := strings.TrimPrefix(folder+"/", "/")
	listed, err := f.b.list(prefix)
	if err != nil {
		return nil, f.b.fail(folder, err)
	}
	for _, e := range listed {
		name, ok := strings.CutPrefix(e.key, prefix)
		if !ok || name == "" {
			continue
		}
		base, dir := strings.CutSuffix(name, "/")
		if base == "." || !fs.ValidPath(base) || strings.ContainsFunc(base, unicode.IsControl) {
			return nil, f.b.fail(folder, fmt.Errorf("the key %s is not the name of a file", term.Name(e.key)))
		}
		entries = append(entries, fs.FileInfoToDirEntry(objectInfo{e.attributes, base, dir}))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// objectInfo describes an object or a folder. The version is another when the object was replaced.
type objectInfo struct {
	attributes
	name string
	dir  bool
}

func (i objectInfo) Name() string       { return i.name }
func (i objectInfo) Size() int64        { return i.size }
func (i objectInfo) ModTime() time.Time { return i.modified }
func (i objectInfo) IsDir() bool        { return i.dir }
func (i objectInfo) Sys() any           { return nil }
func (i objectInfo) Tag() string        { return i.tag }
func (i objectInfo) Version() string    { return i.tag + " " + i.modified.UTC().Format(time.RFC3339Nano) }
func (i objectInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

// An object is open for random access. ReadAt and ReadRanges may be called
// concurrently.
type object struct {
	info objectInfo
	b    *Bucket
	key  string
	pos  int64 // of Read
}

func (o *object) Stat() (fs.FileInfo, error) { return o.info, nil }
func (o *object) Close() error               { return nil }

func (o *object) Read(p []byte) (int, error) {
	n, err := o.ReadAt(p[:min(int64(len(p)), max(o.info.size-o.pos, 0))], o.pos)
	o.pos += int64(n)
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: negative offset %d", o.b.URL(o.key), off)
	}
	end := int(min(int64(len(p)), max(o.info.size-off, 0)))
	n, failed := 0, 0
	for n < end { // a body that breaks off is continued where it ended
		read, err := o.get(p[n:end], off+int64(n))
		n += read
		if read >= leastRead {
			failed = 0
		}
		if err == nil || read >= goodRead {
			continue
		}
		failed++
		if !errors.As(err, new(*brokenOff)) || failed == tries || !wait(o.b.ctx, pause(failed, nil)) {
			return n, o.b.fail(o.key, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

const (
	leastRead = 1 << 10  // bytes of a body after which the count of tries restarts
	goodRead  = 64 << 10 // bytes after which one that broke off is continued without a pause
)

// A brokenOff error is that of an answer whose body ends early.
type brokenOff struct{ error }

func (e *brokenOff) Unwrap() error { return e.error }

// get fills p with the bytes at off, in one request.
func (o *object) get(p []byte, off int64) (int, error) {
	ctx, cancel := context.WithCancel(o.b.ctx)
	defer cancel()
	r, now, err := o.b.store.get(ctx, o.key, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if was := o.info.attributes; now.size != was.size || now.tag != was.tag {
		return 0, fmt.Errorf("it has changed since it was opened: %d bytes of %v, was %d bytes of %v", now.size, now.modified, was.size, was.modified)
	}
	n, err := io.ReadFull(r, p)
	if err != nil {
		err = &brokenOff{fmt.Errorf("the answer ended after %d of %d bytes: %w", n, len(p), err)}
	}
	return n, err
}

// ReadRanges makes an object a safetensors.RangeReader. A request costs more than
// the bytes of a gap, so neighbors are read together, up to a size that bounds the
// memory.
func (o *object) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	const largestGap, most = 256 << 10, 1 << 20
	var requests errgroup.Group
	requests.SetLimit(8) // in each call; several calls may run concurrently
	var near []target
	request := func() {
		if targets := near; len(targets) > 0 {
			requests.Go(func() error { return o.readTogether(targets) })
		}
		near = nil
	}
	for off, dst := range ranges {
		next := target{off, dst}
		if len(near) > 0 && (off-near[len(near)-1].end() > largestGap || next.end()-near[0].off > most) {
			request()
		}
		near = append(near, next)
	}
	request()
	return requests.Wait()
}

// A target is a place in an object and where its bytes go.
type target struct {
	off int64
	dst []byte
}

func (t target) end() int64 { return t.off + int64(len(t.dst)) }

// readTogether fills targets by one request that includes the gaps between them.
func (o *object) readTogether(targets []target) error {
	whole := targets[0]
	if len(targets) > 1 {
		whole.dst = make([]byte, targets[len(targets)-1].end()-whole.off)
	}
	if n, err := o.ReadAt(whole.dst, whole.off); n < len(whole.dst) {
		return err
	}
	if len(targets) > 1 {
		for _, t := range targets {
			copy(t.dst, whole.dst[t.off-whole.off:])
		}
	}
	return nil
}
