package zipfile

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"
)

// An unpacked reads the content of a compressed member. It unpacks the whole member into memory.
type unpacked struct {
	*Member
	check func(bytes int64) error
}

func (u unpacked) ReadAt(p []byte, off int64) (int, error) {
	kept, err := u.content()
	if err != nil {
		return 0, err
	}
	n, err := bytes.NewReader(kept.bytes).ReadAt(p, off)
	held.release(kept, int64(n))
	return n, err
}

// content returns the content. It is not dropped until the caller calls contents.release.
func (u unpacked) content() (*content, error) {
	u.unpacking.Lock()
	defer u.unpacking.Unlock()
	if held.pin(u.kept) {
		return u.kept, nil
	}
	if err := u.check(u.Size); err != nil {
		return nil, fmt.Errorf("zip member %.200q: %w", u.Name, err)
	}
	b := held.reserve(u.Size)
	if int64(cap(b)) < u.Size {
		b = make([]byte, u.Size)
	}
	b = b[:u.Size]
	if err := u.fill(b); err != nil {
		held.cancel(u.Size)
		return nil, err
	}
	u.kept = held.add(b)
	return u.kept, nil
}

// maxHeldBytes limits the bytes that all contents in this process take together, including those
// that are being unpacked. A single content may be larger. Tests set it to less.
var maxHeldBytes = int64(256 << 20)

// idle is how long a partly read content is kept after its last read, if another content needs the
// room. Tests set it to more.
var idle = 100 * time.Millisecond

// held holds the contents of all archives of this process, which share one budget.
var held contents

// contents are the unpacked contents of members. If room is needed, the oldest is dropped first,
// except that a content that has not been read completely is kept while it is being read: several
// files that are copied concurrently take turns, so that no block of a copy unpacks a member again.
// A member owns its content: the contents of an archive that is no longer used are garbage.
type contents struct {
	mu      sync.Mutex
	order   []weak.Pointer[content]
	size    int64         // number of bytes, including the contents that are being unpacked
	changed chan struct{} // closed when a content is released or a reservation canceled; nil if no goroutine waits
}

// A content is the content of one member. contents.mu guards its fields.
type content struct {
	bytes   []byte // nil once it is dropped
	readers int    // number of readers that read it now
	unread  int64  // bytes that are still unread, if each byte is read once
	last    time.Time
	cleanup runtime.Cleanup
}

// pin adds a reader to a content, so that it is not dropped. It returns false if the content was
// dropped, or never unpacked.
func (c *contents) pin(kept *content) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept == nil || kept.bytes == nil {
		return false
	}
	kept.readers++
	return true
}

// release removes a reader, which has read n bytes.
func (c *contents) release(kept *content, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept.readers--
	kept.unread -= n
	kept.last = time.Now()
	c.wake()
}

// add turns the reservation for b into a content, which has one reader.
func (c *contents) add(b []byte) *content {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := &content{bytes: b, readers: 1, unread: int64(len(b))}
	kept.cleanup = runtime.AddCleanup(kept, c.cancel, int64(len(b)))
	c.order = append(c.order, weak.Make(kept))
	return kept
}

// cancel gives up a reservation of size bytes.
func (c *contents) cancel(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size -= size
	c.wake()
}

// wake wakes the goroutines that wait for room.
func (c *contents) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// reserve waits until there is room for size bytes more, and reserves it. It returns the memory of
// the largest content that it has dropped for that, which the caller may reuse, or nil if its size
// does not fit. If it has dropped much more, it runs the garbage collector: otherwise the heap would
// grow to several times the budget.
func (c *contents) reserve(size int64) []byte {
	const worthwhile = 16 << 20
	largest, dropped := c.makeRoom(size)
	// Memory beyond size bytes would not be counted in the budget.
	if spare := int64(len(largest)) - size; spare < 0 || spare > size/8 {
		largest = nil
	}
	if dropped-int64(len(largest)) > worthwhile {
		runtime.GC()
	}
	return largest
}

// makeRoom waits until there is room for size bytes, and reserves it. It returns the memory of the
// largest content that it has dropped, and the total size in bytes of all that it has dropped.
func (c *contents) makeRoom(size int64) (largest []byte, dropped int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.size > 0 && c.size+size > maxHeldBytes {
		if b, ok := c.drop(); ok {
			dropped += int64(len(b))
			if len(b) > len(largest) {
				largest = b
			}
			continue
		}
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(idle):
		}
		c.mu.Lock()
	}
	c.size += size
	return largest, dropped
}

// drop drops the oldest content that has no reader, and that was read completely or is idle. It
// returns the memory of the content, and false if there is none.
func (c *contents) drop() (b []byte, ok bool) {
	c.order = slices.DeleteFunc(c.order, func(p weak.Pointer[content]) bool { return p.Value() == nil })
	for i, p := range c.order {
		kept := p.Value()
		if kept == nil || kept.readers > 0 || kept.unread > 0 && time.Since(kept.last) < idle {
			continue
		}
		kept.cleanup.Stop()
		b, kept.bytes = kept.bytes, nil
		c.size -= int64(len(b))
		c.order = slices.Delete(c.order, i, i+1)
		return b, true
	}
	return nil, false
}
