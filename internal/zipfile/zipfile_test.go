package zipfile

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A raw is a member as it is stored in an archive. Its entry in the directory may be false.
type raw struct {
	zip.FileHeader
	content string
}

func stored(name, content string) raw {
	n := uint64(len(content))
	return raw{zip.FileHeader{Name: name, CRC32: crc32.ChecksumIEEE([]byte(content)), CompressedSize64: n, UncompressedSize64: n}, content}
}

func deflated(t testing.TB, name, content string) raw {
	var b bytes.Buffer
	w := must(flate.NewWriter(&b, 6))
	must(w.Write([]byte(content)))
	require.NoError(t, w.Close())
	m := stored(name, content)
	m.Method, m.content, m.CompressedSize64 = zip.Deflate, b.String(), uint64(b.Len())
	return m
}

func (m raw) with(change func(*raw)) raw {
	change(&m)
	return m
}

func archive(t testing.TB, members ...raw) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		must(must(w.CreateRaw(&m.FileHeader)).Write([]byte(m.content)))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// inTurn calls f(0) to f(n-1), one after another.
func inTurn(n int64, f func(i int64) error) error {
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

func open(data []byte) (*Archive, error) {
	a, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	return a, a.Locate(a.Members, inTurn)
}

// TestMembers reads stored, compressed and empty members.
func TestMembers(t *testing.T) {
	text := strings.Repeat("text", 1000)
	a := must(open(archive(t, stored("b", "1234"), deflated(t, "a", text), stored("empty", ""))))
	require.Len(t, a.Members, 3)
	require.Nil(t, a.Member("c"))
	m := a.Member("b")
	require.Equal(t, "1234", string(must(io.ReadAll(io.NewSectionReader(m.Content(nil), 0, m.Size)))))
	m = a.Member("a")
	require.Equal(t, text, string(must(m.ReadAll(m.Size))))
	_, err := m.ReadAll(3999)
	require.EqualError(t, err, `zip member "a" has 4000 bytes, more than 3999`)
}

// TestContent: a compressed member is unpacked once, however often it is read, until other contents
// need its room. An error is not cached.
func TestContent(t *testing.T) {
	defer func(n int64) { maxHeldBytes = n }(maxHeldBytes)
	maxHeldBytes = 11
	a := must(open(archive(t, deflated(t, "a", "text"), deflated(t, "b", "more"), deflated(t, "c", "last"))))
	broken, unpacked := errors.New("broken"), map[string]int{}
	content := func(name string) io.ReaderAt {
		m := a.Member(name)
		return m.Content(func(bytes int64) error {
			require.Equal(t, m.Size, bytes)
			if unpacked[name]++; unpacked[name] == 1 {
				return broken
			}
			return nil
		})
	}
	read := func(name string) string {
		part := make([]byte, 9)
		n, err := content(name).ReadAt(part, 1)
		require.Equal(t, io.EOF, err)
		return string(part[:n])
	}
	for _, name := range []string{"a", "b", "c"} {
		_, err := content(name).ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, broken)
	}
	for range 3 {
		require.Equal(t, "ext", read("a"))
		require.Equal(t, "ore", read("b"))
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 1}, unpacked)
	require.Equal(t, "ast", read("c"))
	require.Equal(t, "ore", read("b"))
	require.Equal(t, "ext", read("a"))
	require.Equal(t, map[string]int{"a": 3, "b": 2, "c": 2}, unpacked)
}

// TestRefused: an archive is refused if its members overlap or extend beyond the file, or if their
// sizes differ from those that it claims.
func TestRefused(t *testing.T) {
	good, packed := stored("a", "1234"), deflated(t, "a", "1234")
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"no archive":       {[]byte("PK\x03\x04"), "the zip archive ends before its directory"},
		"duplicate":        {archive(t, good, good), `duplicate zip member "a"`},
		"encrypted":        {archive(t, good.with(func(m *raw) { m.Flags = 1 })), `zip member "a": it is encrypted`},
		"method":           {archive(t, good.with(func(m *raw) { m.Method = 12 })), `zip member "a": unknown compression method 12`},
		"stored size":      {archive(t, good.with(func(m *raw) { m.UncompressedSize64 = 5 })), `zip member "a": stored size 4 is not its size 5`},
		"beyond the file":  {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 500, 500 })), `its 500 bytes exceed the file of`},
		"beyond, 64 bits":  {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 1<<63, 1<<63 })), `its 9223372036854775808 bytes exceed the file of`},
		"in the directory": {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 60, 60 })), `its 60 bytes at byte 31 run into the directory at the end of the file`},
		"packed too well":  {archive(t, packed.with(func(m *raw) { m.UncompressedSize64 = 1 << 40 })), fmt.Sprint(packed.CompressedSize64, " bytes cannot hold the 1099511627776 that it claims")},
		"overlap":          {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 20, 20 }), stored("b", "1234")), `zip members "a" and "b" overlap`},
		"one header":       {secondAt(t, 0), `zip members "a" and "b" overlap`}, // zip bombs use this
		"no header":        {secondAt(t, 3), `zip member "b": zip: not a valid zip file`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(test.data)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// secondAt returns an archive with the members a and b. Its directory claims that b is at byte
// start.
func secondAt(t *testing.T, start uint32) []byte {
	data := archive(t, stored("a", "1234"), stored("b", "1234"))
	entry := bytes.LastIndex(data, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(data[entry+42:], start)
	return data
}

// TestLyingContent: if the content of a compressed member has another size or another checksum than
// its entry, reading it is an error.
func TestLyingContent(t *testing.T) {
	long := strings.Repeat("text", 100_000)
	for name, m := range map[string]raw{
		"shorter":    deflated(t, "a", "1234").with(func(m *raw) { m.UncompressedSize64++ }),
		"longer":     deflated(t, "a", "1234").with(func(m *raw) { m.UncompressedSize64-- }),
		"bomb":       deflated(t, "a", long).with(func(m *raw) { m.UncompressedSize64 = 4 }),
		"truncated":  deflated(t, "a", long).with(func(m *raw) { m.CompressedSize64 -= 3; m.content = m.content[:len(m.content)-3] }),
		"checksum":   deflated(t, "a", "1234").with(func(m *raw) { m.CRC32++ }),
		"stored":     stored("a", "1234").with(func(m *raw) { m.CRC32++ }),
		"no deflate": deflated(t, "a", "1234").with(func(m *raw) { m.content = "\xff" + m.content[1:] }),
	} {
		t.Run(name, func(t *testing.T) {
			a := must(open(archive(t, m)))
			_, err := a.Member("a").ReadAll(1 << 30)
			require.ErrorContains(t, err, `zip member "a": `)
		})
	}
}

// A sparse is a file that stores only its start and its end. The bytes between them, which are
// written in long blocks, are zeros.
type sparse struct {
	start, end []byte
	size       int64
}

func (s *sparse) Write(p []byte) (int, error) {
	if s.size == 0 {
		s.start = bytes.Clone(p)
	} else if len(p) < 1<<16 {
		s.end = append(s.end, p...)
	}
	s.size += int64(len(p))
	return len(p), nil
}

func (s *sparse) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	for i := range p {
		if at := off + int64(i); at >= s.size {
			return i, io.EOF
		} else if k := at - (s.size - int64(len(s.end))); k >= 0 {
			p[i] = s.end[k]
		} else if at < int64(len(s.start)) {
			p[i] = s.start[at]
		}
	}
	return len(p), nil
}

// TestZip64 reads the directory of an archive with a member of 5 GiB.
func TestZip64(t *testing.T) {
	const size = int64(5 << 30)
	var file sparse
	w := zip.NewWriter(&file)
	member := must(w.CreateRaw(&zip.FileHeader{Name: "a", CompressedSize64: uint64(size), UncompressedSize64: uint64(size)}))
	block := make([]byte, 1<<20)
	for range size >> 20 {
		must(member.Write(block))
	}
	require.NoError(t, w.Close())
	a := must(Open(&file, file.size))
	require.NoError(t, a.Locate(a.Members, inTurn))
	m := a.Member("a")
	require.EqualValues(t, size, m.Size)
	n, err := m.Content(nil).ReadAt(make([]byte, 10), size-7)
	require.Equal(t, 7, n)
	require.Equal(t, io.EOF, err)
}

// TestHolds: Holds recognizes an archive without reading the headers of its members.
func TestHolds(t *testing.T) {
	data := secondAt(t, 3)
	require.True(t, Holds(bytes.NewReader(data), int64(len(data)), "b"))
	require.False(t, Holds(bytes.NewReader(data), int64(len(data)), "c"))
}

// TestCheckUnpack: a member that is packed much better than weights can be is not unpacked into
// memory.
func TestCheckUnpack(t *testing.T) {
	for _, test := range []struct {
		size, packed uint64
		refused      bool
	}{
		{256 << 20, 1 << 20, false},
		{256<<20 + 1, 8 << 20, false},
		{288 << 20, 9 << 20, false},
		{289 << 20, 9 << 20, true},
	} {
		m := &Member{Size: int64(test.size), file: &zip.File{FileHeader: zip.FileHeader{CompressedSize64: test.packed}}}
		require.Equal(t, test.refused, m.CheckUnpack() != nil, test)
	}
}

// A counting reader counts the reads of an archive.
type counting struct {
	*bytes.Reader
	reads int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.Reader.ReadAt(p, off)
}

// TestLocate: opening an archive of many members reads only its directory. Locate reads only the
// headers of the given members.
func TestLocate(t *testing.T) {
	members := []raw{stored("used", "1234")}
	for i := range 5000 {
		members = append(members, stored(fmt.Sprint(i), ""))
	}
	r := &counting{Reader: bytes.NewReader(archive(t, members...))}
	a := must(Open(r, r.Size()))
	require.Less(t, r.reads, 100)
	r.reads = 0
	m := a.Member("used")
	require.NoError(t, a.Locate([]*Member{m}, inTurn))
	require.Equal(t, 1, r.reads)
	require.NoError(t, a.Locate([]*Member{m}, inTurn))
	require.Equal(t, 1, r.reads)
	require.Equal(t, "1234", string(must(io.ReadAll(io.NewSectionReader(m.Content(nil), 0, m.Size)))))
}

// TestOverlapUnlocated: members that overlap are refused even if their headers are not read.
func TestOverlapUnlocated(t *testing.T) {
	data := secondAt(t, 0)
	a := must(Open(bytes.NewReader(data), int64(len(data))))
	require.ErrorContains(t, a.Locate(a.Members[:1], inTurn), `zip members "a" and "b" overlap`)
}

// TestOneBudget: the contents of two archives, including those that are being unpacked, never take
// more memory than the common budget. Members that are read in turns are unpacked only once each.
func TestOneBudget(t *testing.T) {
	const size, budget, parts = 1 << 16, 2<<16 + 1000, 16 // has some room for contents of other tests
	defer func(n int64, d time.Duration) { maxHeldBytes, idle = n, d }(maxHeldBytes, idle)
	idle = time.Hour
	maxHeldBytes = budget
	unpacked := make(chan string, 1000)
	var all sync.WaitGroup
	for _, name := range []string{"x", "y"} {
		a := must(open(archive(t, deflated(t, "a", strings.Repeat("a", size)), deflated(t, "b", strings.Repeat("b", size)), deflated(t, "c", strings.Repeat("c", size)))))
		for _, m := range a.Members {
			all.Add(1)
			go func() {
				defer all.Done()
				r := m.Content(func(int64) error {
					unpacked <- name + m.Name
					return nil
				})
				for part := range parts {
					b := make([]byte, size/parts)
					n, err := r.ReadAt(b, int64(part*len(b)))
					if n < len(b) || b[0] != m.Name[0] {
						t.Error(n, err, b[0])
					}
					held.mu.Lock()
					if held.size > budget {
						t.Error("too much memory", held.size)
					}
					held.mu.Unlock()
				}
			}()
		}
	}
	all.Wait()
	require.Len(t, unpacked, 6)
}

// TestContentIsGarbage: the contents of an archive that is no longer used do not count in the
// budget.
func TestContentIsGarbage(t *testing.T) {
	before := func() int64 { held.mu.Lock(); defer held.mu.Unlock(); return held.size }
	unused := func() bool { runtime.GC(); return before() == 0 }
	require.Eventually(t, unused, 10*time.Second, time.Millisecond, "archives of other tests are garbage")
	a := must(open(archive(t, deflated(t, "a", strings.Repeat("a", 1<<16)))))
	must(a.Member("a").Content(func(int64) error { return nil }).ReadAt(make([]byte, 1), 0))
	require.GreaterOrEqual(t, before(), int64(1<<16-1<<10))
	runtime.KeepAlive(a)
	a = nil
	require.Eventually(t, unused, 10*time.Second, time.Millisecond)
}

// TestLargeDirectory: an archive whose directory would take much memory is refused.
func TestLargeDirectory(t *testing.T) {
	name := strings.Repeat("n", 60_000)
	var members []raw
	for i := range maxDirectory/60_000 + 1 {
		members = append(members, stored(name+fmt.Sprint(i), ""))
	}
	data := archive(t, members[:len(members)*9/10]...)
	must(Open(bytes.NewReader(data), int64(len(data))))
	data = archive(t, members...)
	_, err := Open(bytes.NewReader(data), int64(len(data)))
	require.ErrorContains(t, err, "reading the zip directory: it has more than 16777216 bytes")
}

// TestTwoEnds: an archive is refused if its 64-bit end record gives another directory than its end
// record, because Python and PyTorch read the former. An archive whose records agree is read.
func TestTwoEnds(t *testing.T) {
	data := archive(t, stored("a", "1234"))
	end := data[len(data)-22:]
	length, offset := binary.LittleEndian.Uint32(end[12:]), binary.LittleEndian.Uint32(end[16:])
	with := func(members, length, offset uint64) []byte {
		b := bytes.Clone(data[:len(data)-22])
		at := uint64(len(b))
		b = append(b, "PK\x06\x06"...)
		b = binary.LittleEndian.AppendUint64(b, 44)
		b = append(b, make([]byte, 12)...)
		for _, n := range []uint64{members, members, length, offset} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		b = append(b, "PK\x06\x07\x00\x00\x00\x00"...)
		b = binary.LittleEndian.AppendUint64(b, at)
		return append(append(b, 1, 0, 0, 0), end...)
	}
	must(Open(bytes.NewReader(data), int64(len(data))))
	for _, test := range []struct {
		members, length, offset uint64
		refused                 bool
	}{
		{1, uint64(length), uint64(offset), false},
		{2, uint64(length), uint64(offset), true},
		{1, uint64(length) + 1, uint64(offset), true},
		{1, uint64(length), 0, true},
	} {
		b := with(test.members, test.length, test.offset)
		_, err := Open(bytes.NewReader(b), int64(len(b)))
		if test.refused {
			require.ErrorContains(t, err, "its two ends name different directories")
		}
		require.Equal(t, test.refused, err != nil, "%v", err)
	}
	after := append(bytes.Clone(data), "more"...)
	_, err := Open(bytes.NewReader(after), int64(len(after)))
	require.ErrorContains(t, err, "there are bytes after its end")
}
