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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// raw is a member as it is in an archive, with a directory that may lie.
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

// inTurn calls f(0) to f(n-1).
func inTurn(n int64, f func(i int64) error) error {
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

func open(data []byte) (*Archive, error) {
	return Open(bytes.NewReader(data), int64(len(data)), inTurn)
}

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

// TestContent: a compressed member is unpacked once, however many reads there are, until others
// took its room; an error is not kept.
func TestContent(t *testing.T) {
	defer func(n int64) { heldBytes = n }(heldBytes)
	heldBytes = 11
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

func TestRefused(t *testing.T) {
	good, packed := stored("a", "1234"), deflated(t, "a", "1234")
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"no archive":       {[]byte("PK\x03\x04"), "reading the zip directory: zip: not a valid zip file"},
		"duplicate":        {archive(t, good, good), `duplicate zip member "a"`},
		"encrypted":        {archive(t, good.with(func(m *raw) { m.Flags = 1 })), `zip member "a": it is encrypted`},
		"method":           {archive(t, good.with(func(m *raw) { m.Method = 12 })), `zip member "a": unknown compression method 12`},
		"stored size":      {archive(t, good.with(func(m *raw) { m.UncompressedSize64 = 5 })), `zip member "a": stored size 4 is not its size 5`},
		"beyond the file":  {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 500, 500 })), `its 500 bytes exceed the file of`},
		"beyond, 64 bits":  {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 1<<63, 1<<63 })), `its 9223372036854775808 bytes exceed the file of`},
		"in the directory": {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 60, 60 })), `its 60 bytes at byte 31 run into the directory at the end of the file`},
		"packed too well":  {archive(t, packed.with(func(m *raw) { m.UncompressedSize64 = 1 << 40 })), fmt.Sprint(packed.CompressedSize64, " bytes cannot hold the 1099511627776 that it claims")},
		"overlap":          {archive(t, good.with(func(m *raw) { m.CompressedSize64, m.UncompressedSize64 = 20, 20 }), stored("b", "1234")), `zip members "a" and "b" overlap`},
		"one header":       {secondAt(t, 0), `zip members "a" and "b" overlap`}, // as in a zip bomb
		"no header":        {secondAt(t, 3), `zip member "b": zip: not a valid zip file`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(test.data)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// secondAt has members a and b; b is at byte start by the directory.
func secondAt(t *testing.T, start uint32) []byte {
	data := archive(t, stored("a", "1234"), stored("b", "1234"))
	entry := bytes.LastIndex(data, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(data[entry+42:], start)
	return data
}

// TestLyingContent: a compressed member of another size, or with another checksum,
// is an error when it is read.
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

// sparse is a file with zeros where it was written in long blocks, in its middle.
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

// TestZip64 reads the directory of a member of 5 GiB.
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
	a := must(Open(&file, file.size, inTurn))
	m := a.Member("a")
	require.EqualValues(t, size, m.Size)
	n, err := m.Content(nil).ReadAt(make([]byte, 10), size-7)
	require.Equal(t, 7, n)
	require.Equal(t, io.EOF, err)
}

// TestHolds: what a file is can be told without the starts of its members.
func TestHolds(t *testing.T) {
	data := secondAt(t, 3)
	require.True(t, Holds(bytes.NewReader(data), int64(len(data)), "b"))
	require.False(t, Holds(bytes.NewReader(data), int64(len(data)), "c"))
}

// TestCheckUnpack: what packs much better than weights can is not unpacked into memory.
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
