package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bucket"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
)

// layoutAway returns the layout of a checkpoint on a server, of the shards next to an index, "" if
// there is none. find describes the files; it may be nil, and a Layout without Files has all else.
func layoutAway(f *safetensors.File, index string, find func(name string) (File, error)) (*Layout, error) {
	l := &Layout{Index: index}
	var names []string
	l.Shards, names, l.Plain = shardsOf(f)
	if find == nil {
		return l, nil
	}
	if index != "" {
		names = append(names, index)
	}
	for _, name := range names {
		file, err := find(name)
		if errors.Is(err, fs.ErrNotExist) { // the list does not have it, or not its sum
			l.Files = nil
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		l.Files = append(l.Files, file)
	}
	return l, nil
}

// layoutInRepo is layoutAway of a repository: of a file in it, or of the folder of a model. listed
// is what the hub says of its files, nil if that is not known.
func (o *Opener) layoutInRepo(f *safetensors.File, repo, revision, file string, folder *Folder, listed map[string]HubFile) (*Layout, error) {
	dir, index := file, ""
	if _, names, _ := shardsOf(f); strings.HasSuffix(file, ".json") {
		dir, index = path.Dir(file), path.Base(file)
	} else if len(names) != 1 || names[0] != format.ModelFile {
		index = format.IndexFile
	}
	if listed == nil {
		return layoutAway(f, index, nil)
	}
	request := o.inRepo(repo, revision, dir)
	return layoutAway(f, index, func(name string) (File, error) {
		said, ok := listed[path.Join(dir, name)]
		if !ok {
			return File{}, fs.ErrNotExist
		}
		file := File{Name: name, Size: said.Size, Hub: &said}
		if name == index {
			text, err := folder.ReadFile(name)
			file.Size, file.Open = int64(len(text)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
			return file, err
		}
		if file.Size == 0 { // it does not say
			file.Size = -1
		}
		if said.git && file.Size < 0 {
			return File{}, fs.ErrNotExist
		}
		file.Open = func() (io.ReadCloser, error) {
			return &download{o: o, request: func() (*http.Request, error) { return request(name) }, size: file.Size}, nil
		}
		return file, nil
	})
}

// A download reads a file of a server in one request. Where the answer breaks off, another one goes
// on.
type download struct {
	o         *Opener
	request   func() (*http.Request, error)
	size, pos int64         // the size is -1 until an answer says it
	body      io.ReadCloser // nil if a request is due
}

func (d *download) Read(p []byte) (int, error) {
	const tries = 5 // that bring no byte
	for failed := 1; ; failed++ {
		if d.body == nil {
			if err := d.get(); err != nil {
				return 0, err
			}
		}
		n, err := d.body.Read(p)
		d.pos += int64(n)
		switch {
		case n > 0 || err == nil: // an error comes again
			return n, nil
		case err == io.EOF && (d.size < 0 || d.pos >= d.size):
			return 0, io.EOF
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		d.Close()
		if failed == tries || d.size < 0 {
			return 0, fmt.Errorf("the answer ended after %d bytes: %w", d.pos, err)
		}
		select {
		case <-time.After(time.Duration(failed) * time.Second / 10):
		case <-d.o.Context.Done():
			return 0, context.Cause(d.o.Context)
		}
	}
}

// Close ends the answer.
func (d *download) Close() (err error) {
	if d.body != nil {
		err = d.body.Close()
	}
	d.body = nil
	return err
}

// get asks for the rest of the file.
func (d *download) get() error {
	req, err := d.request()
	if err != nil {
		return err
	}
	status := http.StatusOK
	if d.pos > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.pos))
		status = http.StatusPartialContent
	}
	client := d.o.client()
	client.Transport = bucket.RetryTransport{RoundTripper: client.Transport}
	resp, err := send(client, req, status)
	if err != nil {
		return err
	}
	from := resp.Header.Get("Content-Range")
	switch {
	case d.pos > 0 && !strings.HasPrefix(from, fmt.Sprintf("bytes %d-", d.pos)):
		err = fmt.Errorf("the answer has the range %.40q, expected one from byte %d on", from, d.pos)
	case d.pos == 0 && d.size >= 0 && resp.ContentLength >= 0 && resp.ContentLength != d.size:
		err = fmt.Errorf("the answer has %d bytes, expected %d", resp.ContentLength, d.size)
	}
	if err != nil {
		resp.Body.Close()
		return err
	}
	if d.body = resp.Body; d.pos == 0 && d.size < 0 {
		d.size = resp.ContentLength
	}
	return nil
}
