package bucket

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"golang.org/x/sync/errgroup"
)

const (
	partSize  = 8 << 20 // smallest size of a part in bytes, except the last; S3 requires 5 MiB
	mostParts = 9000    // S3 accepts 10,000, and a file takes some more bytes than its tensors
	inFlight  = 4       // number of parts that are uploaded concurrently
)

// Write calls the func write, and uploads the bytes that it writes, part by part while it is
// running. size is the number of these bytes; it may be slightly too small. The object appears when
// the upload is complete. After an error, or if the context is canceled, the store has either no
// object or the previous one, and no part of an upload.
func (b *Bucket) Write(key string, size int64, write func(io.Writer) error) error {
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := term.Bare(write(w)) // removes the prefix of the library's errors
		if err != nil {
			err = fmt.Errorf("%w", err) // io.EOF would mean the end of the data
		}
		w.CloseWithError(err)
	}()
	err := b.upload(key, size, r)
	r.CloseWithError(err)
	<-ended
	return b.fail(key, err)
}

// upload writes the bytes of r as an object. It uses parts unless there are fewer bytes than in one
// part.
func (b *Bucket) upload(key string, size int64, r io.Reader) error {
	whole := max(partSize, size/mostParts)
	next := func() ([]byte, error) { // returns the next part, which may be shorter at the end
		part := bytes.NewBuffer(make([]byte, 0, max(0, min(whole, size))+bytes.MinRead))
		_, err := io.CopyN(part, r, whole)
		if err == io.EOF {
			err = nil
		}
		return part.Bytes(), err
	}
	part, err := next()
	if err != nil {
		return err
	}
	if int64(len(part)) < whole {
		return b.store.put(b.ctx, key, part, false)
	}
	u, err := b.store.begin(b.ctx, key)
	if err != nil {
		return err
	}
	parent, cancel := context.WithCancel(b.ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(parent) // ctx ends with the first part that fails
	group.SetLimit(inFlight)
	parts := 0
	for err == nil && len(part) > 0 {
		i, body := parts, part
		group.Go(func() error { return u.part(ctx, i, body) })
		parts++
		part, err = next()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if err == nil {
		err = group.Wait()
	}
	if err == nil {
		err = u.complete(b.ctx, parts)
	}
	if err != nil {
		cancel()
		group.Wait() // otherwise a part could arrive after the abort
		b.abort(u)
	}
	return err
}

// abort removes the parts. It repeats that until the store twice in a row does not know the upload, because a
// part that has only just arrived may be stored after the first try, and a store of files may make the
// upload anew for it.
func (b *Bucket) abort(u upload) {
	b, cancel := b.cleaning()
	defer cancel()
	unknown := 0
	for range 20 {
		err := u.abort(b.ctx)
		if err != nil && status(err) == 0 { // the network is gone
			return
		}
		if status(err) != http.StatusNotFound {
			unknown = 0
		} else if unknown++; unknown == 2 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
