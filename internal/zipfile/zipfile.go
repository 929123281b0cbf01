// Package zipfile opens zip archives of untrusted origin, and reads their members.
//
// archive/zip reads the directory of an archive. This package makes the checks that archive/zip
// leaves to its caller: names are unique, members do not overlap and lie within the file, nothing
// is encrypted, and sizes agree with one another and with the limits of the compression.
package zipfile

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
)

// An Archive is an open zip archive. Its Members must not be modified.
type Archive struct {
	Members []*Member // in the order of their headers in the file
	size    int64
	byName  map[string]*Member
}

// A Member is a file in an archive.
type Member struct {
	Name string
	Size int64 // size of the content in bytes, uncompressed

	file   *zip.File
	r      io.ReaderAt // the archive
	header int64       // offset of the local header in the archive, as the directory gives it
	start  int64       // offset of the stored bytes in the archive; 0 until Locate has read the header

	unpacking sync.Mutex // locked while the content is unpacked
	kept      *content   // guarded by unpacking; nil if the content was never unpacked
}

// Holds reports whether a file is an archive with a member whose name ends in suffix. It reads only
// the directory.
func Holds(r io.ReaderAt, size int64, suffix string) bool {
	z, err := directory(&probe{ReaderAt: r}, size)
	return err == nil && slices.ContainsFunc(z.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, suffix) })
}

// directory reads the directory of an archive of size bytes through p.
func directory(p *probe, size int64) (*zip.Reader, error) {
	p.left, p.size = maxDirectory, size
	z, err := zip.NewReader(p, size)
	p.located = true
	if p.failed != nil { // archive/zip may report a failed read as an invalid archive
		return nil, fmt.Errorf("reading the zip directory: %w", p.failed)
	}
	if z != nil {
		if err := p.checkEnd(size, len(z.Comment)); err != nil {
			return nil, fmt.Errorf("reading the zip directory: %w", err)
		}
	}
	if errors.Is(err, zip.ErrFormat) {
		if cut, failed := p.isCut(); failed != nil {
			err = failed
		} else if cut {
			return nil, cutError{}
		} else {
			err = fmt.Errorf("%w: it is cut short or damaged", err)
		}
	}
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // insecure paths are harmless, since no name is used as a path
		return nil, fmt.Errorf("reading the zip directory: %w", err)
	}
	return z, nil
}

// A probe is the reader of an archive. Once located is true and probing is false, it may be used
// concurrently. While probing is true, it reads nothing and records the offset of each read:
// archive/zip knows the offset of a local header from the directory, but does not export it.
type probe struct {
	io.ReaderAt
	probing bool
	offset  int64
	left    int64 // number of bytes that may still be read to find the members
	located bool  // whether all members were found

	tail []byte // the end of the archive, once it was read; otherwise empty
	size int64  // size of the archive

	failed error // first error of a read before located was true, except for the end of the archive
}

// maxDirectory is the largest number of bytes that are read to find the members of an archive. A
// member takes at least 46 of them, and ten times as many in memory.
const maxDirectory = 16 << 20

// A cutError reports that the end of an archive is missing.
type cutError struct{}

func (cutError) Error() string { return "the zip archive ends before its directory" }
func (cutError) Unwrap() error { return io.ErrUnexpectedEOF }

// isCut reports whether the file starts like an archive, but has no end record.
func (p *probe) isCut() (bool, error) {
	const longest = directorySize + 1<<16 // size in bytes of an end record with the longest comment
	var head [4]byte
	tail := make([]byte, min(p.size, longest))
	if n, err := p.ReaderAt.ReadAt(tail, p.size-int64(len(tail))); n < len(tail) {
		return false, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	if n, err := p.ReaderAt.ReadAt(head[:min(len(head), len(tail))], 0); n < min(len(head), len(tail)) {
		return false, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	whole := tail[:max(0, len(tail)-directorySize+len("PK\x05\x06"))] // an end record that starts later is itself cut
	return string(head[:]) == "PK\x03\x04" && !bytes.Contains(whole, []byte("PK\x05\x06")), nil
}

// checkEnd checks the end of an archive of size bytes, whose comment has the given length. Nothing
// may follow the end record. If there is a 64-bit end record in front of it, the two must agree:
// some readers take the directory from the second, while archive/zip does so only if a number in
// the first is the largest possible.
func (p *probe) checkEnd(size int64, comment int) error {
	const (
		endSize, locatorSize, end64Size = 22, 20, 56

		full16, full32 = 1<<16 - 1, 1<<32 - 1
	)
	var b [locatorSize + endSize]byte
	at := size - endSize - int64(comment)
	before := min(at, locatorSize) // an archive without members may be too short for a locator
	if n, err := p.ReadAt(b[locatorSize-before:], at-before); n < int(before)+endSize {
		return err
	}
	locator, end := b[:locatorSize], b[locatorSize:]
	switch {
	case string(end[:4]) != "PK\x05\x06":
		return errors.New("there are bytes after its end")
	case string(locator[:4]) != "PK\x06\x07":
		return nil
	}
	var end64 [end64Size]byte
	if n, err := p.ReadAt(end64[:], int64(binary.LittleEndian.Uint64(locator[8:]))); n < end64Size {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	members, length, offset := binary.LittleEndian.Uint16(end[10:]), binary.LittleEndian.Uint32(end[12:]), binary.LittleEndian.Uint32(end[16:])
	if members == full16 || length == full16 || offset == full32 { // then archive/zip takes the directory from the 64-bit record; it compares the length with full16, too
		return nil
	}
	if string(end64[:4]) != "PK\x06\x06" || binary.LittleEndian.Uint64(end64[32:]) != uint64(members) ||
		binary.LittleEndian.Uint64(end64[40:]) != uint64(length) || binary.LittleEndian.Uint64(end64[48:]) != uint64(offset) {
		return errors.New("its two ends name different directories")
	}
	return nil
}

var errProbing = errors.New("the archive is not read now")

func (p *probe) ReadAt(b []byte, off int64) (int, error) {
	if p.probing {
		p.offset = off
		return 0, errProbing
	}
	if off < 0 || off > p.size { // an offset in the archive leads out of it; a reader would return an error of its own
		return 0, zip.ErrFormat
	}
	if !p.located {
		if p.left -= int64(len(b)); p.left < 0 {
			return 0, fmt.Errorf("it has more than %d bytes", maxDirectory)
		}
	}
	if at := off - (p.size - int64(len(p.tail))); at >= 0 && at+int64(len(b)) <= int64(len(p.tail)) {
		return copy(b, p.tail[at:]), nil
	}
	n, err := p.ReaderAt.ReadAt(b, off)
	if err != nil && err != io.EOF && !p.located {
		p.failed = cmp.Or(p.failed, err)
	}
	if !p.located && n == len(b) && off+int64(n) == p.size {
		p.tail = bytes.Clone(b) // kept because each read may be a request
	}
	return n, err
}

// Open reads the directory of the archive of size bytes in r. Before the content of a member is
// read, Locate must be called with it.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	p := &probe{ReaderAt: r}
	z, err := directory(p, size)
	if err != nil {
		return nil, err
	}
	a := &Archive{make([]*Member, len(z.File)), size, make(map[string]*Member, len(z.File))}
	p.probing = true
	for i, f := range z.File {
		p.offset = -1
		f.DataOffset() // always fails, but calls p.ReadAt with the offset of the local header
		m := &Member{Name: f.Name, Size: int64(f.UncompressedSize64), file: f, r: r, header: p.offset}
		if err := m.check(size); err != nil {
			return nil, fmt.Errorf("zip member %.200q: %w", f.Name, err)
		}
		if a.byName[m.Name] != nil {
			return nil, fmt.Errorf("duplicate zip member %.200q", m.Name)
		}
		a.Members[i], a.byName[m.Name] = m, m
	}
	p.probing = false
	slices.SortStableFunc(a.Members, func(m, n *Member) int { return cmp.Compare(m.header, n.header) })
	return a, nil
}

// Locate reads the local headers of members, and checks that no members of the archive overlap. The
// func each must call f(0) to f(n-1), and return the first error. It may make the calls
// concurrently, which pays because each call reads from the archive, and a read may be a request.
func (a *Archive) Locate(members []*Member, each func(n int64, f func(i int64) error) error) error {
	err := each(int64(len(members)), func(i int64) error {
		m := members[i]
		if err := m.locate(a.size); err != nil {
			return fmt.Errorf("zip member %.200q: %w", m.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return a.checkOverlap()
}

// localHeader is the size of a member's header without its name and extra field.
const localHeader = 30

// checkOverlap checks that the header of each member comes after the end of the member before it.
// Where the header of a member was not read, its extra field is assumed to be empty.
func (a *Archive) checkOverlap() error {
	end := int64(0)
	for i, m := range a.Members {
		if m.header < end {
			return fmt.Errorf("zip members %.200q and %.200q overlap", a.Members[i-1].Name, m.Name)
		}
		end = max(m.start, m.header+localHeader+int64(len(m.Name))) + int64(m.file.CompressedSize64)
	}
	return nil
}

// directorySize is the smallest size in bytes of a directory, which stands at the end of the
// archive.
const directorySize = 22

// check checks a member's entry in the directory of an archive of size bytes.
func (m *Member) check(size int64) error {
	const (
		encrypted   = 1 << 0
		mostDeflate = 1032 // deflate takes at least 2 bits for 258 bytes
	)
	f := m.file
	stored, unpacked := f.CompressedSize64, f.UncompressedSize64
	switch {
	case f.Flags&encrypted != 0:
		return errors.New("it is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return fmt.Errorf("unknown compression method %d", f.Method)
	case f.Method == zip.Store && stored != unpacked:
		return fmt.Errorf("stored size %d is not its size %d", stored, unpacked)
	case stored > uint64(size):
		return fmt.Errorf("its %d bytes exceed the file of %d", stored, size)
	case unpacked > math.MaxInt64 || unpacked/mostDeflate > stored:
		return fmt.Errorf("%d bytes cannot hold the %d that it claims", stored, unpacked)
	case m.header < 0 || m.header > size-directorySize-int64(stored):
		return fmt.Errorf("its %d bytes at byte %d run into the directory at the end of the file of %d", stored, m.header, size)
	}
	return nil
}

// locate reads the local header, and sets start.
func (m *Member) locate(size int64) error {
	if m.start > 0 {
		return nil
	}
	start, err := m.file.DataOffset()
	stored := int64(m.file.CompressedSize64)
	switch {
	case err != nil:
		return err
	case start < m.header || start > size-directorySize-stored:
		return fmt.Errorf("its %d bytes at byte %d run into the directory at the end of the file of %d", stored, start, size)
	}
	m.start = start
	return nil
}

// Member returns the member with this name, or nil if there is none.
func (a *Archive) Member(name string) *Member { return a.byName[name] }

// Compressed reports whether a member is compressed.
func (m *Member) Compressed() bool { return m.file.Method != zip.Store }

// Content returns a reader for the content of a member that Locate has located. If the member is
// compressed, the first read unpacks it into memory, provided that check accepts its size in bytes.
// The content stays there until other contents need the room. If the member is not compressed, the
// content is read from the archive; its checksum is not verified, since that would take reading all
// of it.
func (m *Member) Content(check func(bytes int64) error) io.ReaderAt {
	if !m.Compressed() {
		return io.NewSectionReader(m.r, m.start, m.Size)
	}
	return unpacked{m, check}
}

// CheckUnpack returns an error if a compressed member would become so much larger that it cannot be
// weights.
func (m *Member) CheckUnpack() error {
	const (
		always    = 256 << 20
		expansion = 32
	)
	if packed := int64(m.file.CompressedSize64); m.Size > always && m.Size/expansion > packed {
		return fmt.Errorf("%d bytes are packed into %d and would have to be unpacked into memory; store the archive without compression", m.Size, packed)
	}
	return nil
}

// Open returns a stream of the content. At its end, the stream verifies the checksum.
func (m *Member) Open() (io.ReadCloser, error) { return m.file.Open() }

// ReadAll returns the content of a member of at most limit bytes, and verifies its
// checksum.
func (m *Member) ReadAll(limit int64) ([]byte, error) {
	if m.Size > limit {
		return nil, fmt.Errorf("zip member %.200q has %d bytes, more than %d", m.Name, m.Size, limit)
	}
	b := make([]byte, m.Size)
	return b, m.fill(b)
}

// fill reads the whole content into b, which must have m.Size bytes, and verifies the checksum.
func (m *Member) fill(b []byte) error {
	r, err := m.Open()
	if err == nil {
		defer r.Close()
		_, err = io.ReadFull(r, b)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, r) // reads to the end, where the checksum is verified
	}
	if err != nil {
		return fmt.Errorf("zip member %.200q: %w", m.Name, err)
	}
	return nil
}
