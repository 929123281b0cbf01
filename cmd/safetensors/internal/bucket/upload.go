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
	partSize  = 8 << 20 // at least: S3 wants 5 MiB
	mostParts = 9000    // S3 accepts 10,000, and a format may take some more bytes than its tensors
	inFlight  = 4       // parts that are uploaded concurrently
)

// Write uploads the size bytes, or some more, that write writes, part by part while it
// writes. The object appears when the upload is complete. After an error, and when the
// context is cancelled, there is no object or the previous one, and no part of an
// upload.
func (b *Bucket) Write(key string, size int64, write func(io.Writer) error) error {
	r, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := term.Bare(write(w)) // of the library, which has a prefix
		if err != nil {
			err = fmt.Errorf("%w", err) // io.EOF would be the end
		}
		w.CloseWithError(err)
	}()
	err := b.upload(key, size, r)
	r.CloseWithError(err)
	<-ended
	return b.fail(key, err)
}

// upload makes an object of what r brings, in parts if it is not less than one.
func (b *Bucket) upload(key string, size int64, r io.Reader) error {
	whole := max(partSize, size/mostParts)
	next := func() ([]byte, error) { // a part, or less at the end
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
	group, ctx := errgroup.WithContext(parent) // which ends with the first part that fails
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
		group.Wait() // or a part comes after the end
		b.abort(u)
	}
	return err
}

// abort removes the parts, until the store no longer knows the upload: one that came to
// an end only just now may be stored after the first try.
func (b *Bucket) abort(u upload) {
	b, cancel := b.cleaning()
	defer cancel()
	for range 20 {
		err := u.abort(b.ctx)
		if status(err) == http.StatusNotFound || err != nil && status(err) == 0 { // or the network is gone
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
