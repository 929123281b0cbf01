package bucket

import (
	"context"
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
	parent, cancel := context.WithCancel(b.ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(parent)
	group.SetLimit(inFlight)
	w := &writer{b: b, key: key, ctx: ctx, group: group, size: int(max(partSize, size/mostParts))}
	err := term.Bare(write(w)) // the store's own errors come back through the library
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		cancel()
		group.Wait() // or a part comes after the end
		w.abort()
	}
	return b.fail(key, err)
}

// A writer cuts what is written into parts.
type writer struct {
	b      *Bucket
	key    string
	ctx    context.Context // ends with the first part that fails
	group  *errgroup.Group
	size   int // of a part
	part   []byte
	parts  int
	upload upload // nil until there is more than one part
}

func (w *writer) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if w.ctx.Err() != nil {
			return n, context.Cause(w.ctx)
		}
		if len(w.part) == w.size {
			if err := w.send(); err != nil {
				return n, err
			}
		}
		take := min(w.size-len(w.part), len(p)-n)
		w.part = append(w.part, p[n:n+take]...)
		n += take
	}
	return n, nil
}

// send starts to upload a part. It waits while enough are on the way.
func (w *writer) send() (err error) {
	if w.upload == nil {
		if w.upload, err = w.b.store.begin(w.b.ctx, w.key); err != nil {
			return err
		}
	}
	i, part := w.parts, w.part
	w.group.Go(func() error { return w.upload.part(w.ctx, i, part) })
	w.parts++
	w.part = make([]byte, 0, w.size)
	return nil
}

// finish makes the object appear.
func (w *writer) finish() error {
	if w.upload == nil {
		return w.b.store.put(w.b.ctx, w.key, w.part, false)
	}
	if err := w.send(); err != nil {
		return err
	}
	if err := w.group.Wait(); err != nil {
		return err
	}
	return w.upload.complete(w.b.ctx, w.parts)
}

// abort removes the parts, until the store no longer knows the upload: one that came to
// an end only just now may be stored after the first try.
func (w *writer) abort() {
	if w.upload == nil {
		return
	}
	b, cancel := w.b.cleaning()
	defer cancel()
	for range 20 {
		err := w.upload.abort(b.ctx)
		if status(err) == http.StatusNotFound || err != nil && status(err) == 0 { // or the network is gone
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
