package zipfile

import (
	"fmt"
	"io"
	"sync"
)

// limits are sizes in bytes. They decide how fast an archive is read, never what.
type limits struct {
	// window is how many bytes before the last one unpacked can still be read.
	// Concurrent reads of adjacent blocks come in any order: the writers of package
	// safetensors have 32 MiB in flight.
	window int64

	// windows is the memory for those that nothing reads at the moment.
	windows int64

	// unpack is how many bytes are unpacked before waiting reads get them.
	unpack int64
}

var usual = limits{window: 32 << 20, windows: 128 << 20, unpack: 256 << 10}

// A window reads a compressed member by offset, in constant memory. It unpacks the
// member in order and keeps the last bytes; a read before those starts again from the
// first byte. The checksum is verified whenever the last byte is unpacked.
type window struct {
	m *Member

	mu     sync.Mutex
	moved  sync.Cond // unpacking is false again
	users  int       // reads in progress
	served int64     // bytes that were read since the window was opened

	unpacking bool // without holding mu
	content   io.ReadCloser
	ring      []byte // byte i is at i modulo its length; nil if the window is closed
	first     int64  // byte in the ring
	end       int64  // of the bytes in the ring
}

func newWindow(m *Member) *window {
	w := &window{m: m}
	w.moved.L = &w.mu
	return w
}

// ReadAt implements io.ReaderAt.
func (w *window) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("negative offset %d", off)
	}
	want := p[:max(0, min(int64(len(p)), w.m.Size-off))]
	if len(want) > 0 {
		w.m.archive.use(w)
		n, err = w.read(want, off)
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// read reads all of p. A read that finds no other unpacking unpacks for all.
func (w *window) read(p []byte, off int64) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users++
	defer func() {
		w.users--
		if w.served += int64(n); err != nil || w.served >= w.m.Size && w.users == 0 {
			w.close() // an operation reads each byte once
		}
	}()
	for {
		for n < len(p) && w.first <= off && off < w.end {
			at := off % int64(len(w.ring))
			k := copy(p[n:], w.ring[at:min(int64(len(w.ring)), at+w.end-off)])
			n, off = n+k, off+int64(k)
		}
		switch {
		case n == len(p):
			return n, nil
		case w.unpacking:
			w.moved.Wait()
			continue
		case w.ring == nil || off < w.first:
			w.close()
			if err := w.open(); err != nil {
				return n, err
			}
		}
		if err := w.unpack(); err != nil {
			return n, err
		}
	}
}

// open starts with the first byte.
func (w *window) open() error {
	content, err := w.m.Open()
	if err != nil {
		return fmt.Errorf("zip member %.200q: %w", w.m.Name, err)
	}
	w.content, w.ring = content, make([]byte, w.m.archive.memory(w))
	return nil
}

// close gives the memory back, unless a read is unpacking into it.
func (w *window) close() {
	if w.content != nil && !w.unpacking {
		w.content.Close()
		w.content, w.ring, w.first, w.end, w.served = nil, nil, 0, 0, 0
	}
}

// unpack unpacks the next bytes into the ring. The lock is given up meanwhile: what is
// left in the ring can be read.
func (w *window) unpack() error {
	at := w.end % int64(len(w.ring))
	dst := w.ring[at:min(int64(len(w.ring)), at+min(w.m.archive.unpack, w.m.Size-w.end))]
	w.first = max(w.first, w.end+int64(len(dst)-len(w.ring)))
	w.unpacking = true
	w.mu.Unlock()
	_, err := io.ReadFull(w.content, dst)
	if err == nil && w.end+int64(len(dst)) == w.m.Size {
		err = checkEnd(w.content)
	}
	w.mu.Lock()
	w.unpacking = false
	w.moved.Broadcast()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("zip member %.200q: %w", w.m.Name, err)
	}
	w.end += int64(len(dst))
	return nil
}

// checkEnd reads the end of a member, which verifies its checksum.
func checkEnd(r io.Reader) error {
	n, err := r.Read(make([]byte, 1))
	switch {
	case n > 0 || err == nil:
		return fmt.Errorf("it is longer than its size")
	case err == io.EOF:
		return nil
	}
	return err
}

// use puts a window in front of those in use, and closes the last ones if all take too
// much memory.
func (a *Archive) use(w *window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kept := append(a.open[:0:0], w)
	memory := a.memory(w)
	for _, other := range a.open {
		size := a.memory(other)
		if other == w || memory+size > a.limits.windows && other.closeIdle() {
			continue
		}
		kept, memory = append(kept, other), memory+size
	}
	a.open = kept
}

// memory returns the bytes of an open window.
func (a *Archive) memory(w *window) int64 { return min(a.window, w.m.Size) }

// closeIdle closes a window that nothing reads, and reports whether it did.
func (w *window) closeIdle() bool {
	if !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	if w.users > 0 {
		return false
	}
	w.close()
	return true
}
