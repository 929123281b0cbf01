package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// An endlessReader claims any size, and answers reads with zeros.
type endlessReader struct{ head []byte }

func (r endlessReader) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	if off < int64(len(r.head)) {
		copy(b, r.head[off:])
	}
	return len(b), nil
}

// A streamFS has one file, which cannot be read by offset, as an entry of a zip archive.
type streamFS struct {
	endlessReader
	size int64
}

func (s streamFS) Open(name string) (fs.File, error) {
	if name != "x.safetensors" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return streamFile{io.NewSectionReader(s, 0, s.size), s.size}, nil
}

type streamFile struct {
	io.Reader
	size int64
}

func (f streamFile) Stat() (fs.FileInfo, error) { return streamInfo{size: f.size}, nil }
func (f streamFile) Close() error               { return nil }

type streamInfo struct {
	fs.FileInfo
	size int64
}

func (i streamInfo) Name() string      { return "x.safetensors" }
func (i streamInfo) Size() int64       { return i.size }
func (i streamInfo) Mode() fs.FileMode { return 0o444 }
func (i streamInfo) IsDir() bool       { return false }

// TestClaimedTensors has small files that claim tensors beyond memory and address
// space: copying them is an error, nothing ends the program.
func TestClaimedTensors(t *testing.T) {
	claims := []int64{1 << 45, 1 << 50, 900_000_000_000_000_000}
	if math.MaxInt == math.MaxInt32 {
		claims = []int64{math.MaxInt32 - 1<<20, math.MaxInt32} // with the alignment beyond an int
	}
	for _, claim := range claims {
		size := int(claim)
		head := bytesHead(size)
		x := must(must(NewFile(endlessReader{head}, int64(len(head))+int64(size))).Tensor("x"))
		require.ErrorContains(t, errorOf(Append[byte](nil, x)), "exceed")
		require.ErrorContains(t, errorOf(Append([]byte{1}, must(x.Slice(Span(0, size-1))))), "exceed")
		require.ErrorContains(t, errorOf(Read(io.NewSectionReader(endlessReader{head}, 0, math.MaxInt64))), "exceed")
		require.ErrorContains(t, errorOf(OpenFS(streamFS{endlessReader{head}, int64(len(head)) + int64(size)}, "x.safetensors")), "exceed")
		part := must(x.Slice(Span(size-3, size)))
		require.Equal(t, []byte{0, 0, 0}, appended[byte](part), "a part of it is no problem")
	}
	if runtime.GOOS != "linux" || math.MaxInt == math.MaxInt32 {
		return
	}
	sparse := filepath.Join(t.TempDir(), "sparse.safetensors")
	head := bytesHead(math.MaxInt >> 21)
	require.NoError(t, os.WriteFile(sparse, head, 0o666))
	require.NoError(t, os.Truncate(sparse, int64(len(head))+math.MaxInt>>21))
	require.ErrorContains(t, errorOf(Load(sparse)), "exceed the memory of this machine")
	f := must(Open(sparse))
	defer f.Close()
	require.ErrorContains(t, errorOf(Append[byte](nil, must(f.Tensor("x")))), "exceed the memory of this machine")
}

// TestOpenUnmapped opens a file that a 32-bit system cannot map, a sparse one: its tensors
// are read on demand.
func TestOpenUnmapped(t *testing.T) {
	if runtime.GOOS != "linux" || math.MaxInt != math.MaxInt32 {
		return
	}
	const size = 3 << 29
	h := &Header{Tensors: []TensorInfo{{Name: "a", DType: U8, Shape: []int{size}}, {Name: "b", DType: U8, Shape: []int{size}}}}
	head := must(h.AppendBinary(nil))
	name := filepath.Join(t.TempDir(), "sparse.safetensors")
	require.NoError(t, os.WriteFile(name, head, 0o666))
	require.NoError(t, os.Truncate(name, int64(len(head))+2*size))
	f := must(Open(name))
	defer f.Close()
	end := must(must(f.Tensor("b")).Slice(Span(size-3, size)))
	require.Equal(t, []byte{0, 0, 0}, appended[byte](end))
	require.ErrorIs(t, errorOf(View[byte](end)), errors.ErrUnsupported)
}

// TestClaimedWrites writes tensors whose size is a claim: it takes memory for what was
// read, and ends with the writer, or the disk.
func TestClaimedWrites(t *testing.T) {
	head := bytesHead(1<<20, 1<<20) // 1 TiB
	tensors := maps.Collect(must(NewFile(endlessReader{head}, int64(len(head))+1<<40)).Tensors())
	x := tensors["x"]
	tensors["columns"] = must(x.Slice(All(), Span(0, 1<<19)))
	tensors["joined"] = must(Concat(1, x, x))
	bytes := testplatform.Allocated(func() {
		require.ErrorIs(t, Write(failingWriter(1<<20), tensors, nil), errWriter)
		require.ErrorIs(t, errorOf(tensors["columns"].WriteTo(failingWriter(1<<20))), errWriter)
	})
	require.Less(t, bytes, uint64(128<<20))
}

// TestClaimedSums has files whose sizes are legal and have no sum: it would be negative
// in a header, or in an index.
func TestClaimedSums(t *testing.T) {
	const size = (1<<31 - 1) << 30 // nearly 2^61, the most that a tensor has
	shard := func(name string) (*File, error) {
		h := &Header{}
		for i := range 3 {
			h.Tensors = append(h.Tensors, TensorInfo{Name: fmt.Sprint(name, i), DType: U8, Shape: []int{1<<31 - 1, 1 << 30}})
		}
		head := must(h.AppendBinary(nil))
		return NewFile(endlessReader{head}, int64(len(head))+3*size)
	}
	a := must(shard("a"))
	b := must(shard("b"))
	_, err := Join(a, b)
	require.EqualError(t, err, "safetensors: the sizes of the files together overflow 63 bits")
	require.False(t, errors.As(err, new(*FormatError)))
	_, err = OpenShards(bytes.NewReader([]byte(`{"weight_map":{"a2":"a","b2":"b"}}`)), shard)
	require.ErrorContains(t, err, "overflow 63 bits")
	require.True(t, errors.As(err, new(*FormatError)))
	require.ErrorContains(t, errorOf(NewIndex(maps.All(map[string]*Header{"a": a.Header(), "b": b.Header()}))), "the sizes of all tensors together overflow 63 bits")
	for _, one := range []*File{a, b} {
		require.EqualValues(t, int64(3*size), must(Join(one)).Header().Tensors[2].DataOffsets[1])
	}
}

// TestLyingReader has readers that break the contract of io.Reader.
func TestLyingReader(t *testing.T) {
	for _, n := range []int{-1, 9, 1 << 30} {
		errs := []error{errorOf(ReadHeader(lyingReader(n))), errorOf(Read(lyingReader(n)))}
		for _, name := range []string{"x.safetensors", "x.safetensors.index.json"} {
			if n == 9 && name != "x.safetensors" { // which an index may have
				continue
			}
			fsys := fstest.MapFS{name: {Data: make([]byte, 16)}}
			errs = append(errs, errorOf(OpenFS(wrappedFS{fsys, func(f fs.File) fs.File { return lyingFile{f, n} }}, name)))
		}
		if n != 9 {
			errs = append(errs, errorOf(ReadIndex(lyingReader(n))))
		}
		for _, err := range errs {
			require.ErrorContains(t, err, fmt.Sprintf("read %d of ", n))
		}
	}
	second := io.MultiReader(bytes.NewReader(make([]byte, 4)), lyingReader(5))
	require.ErrorContains(t, errorOf(Read(second)), "read 5 of 4 bytes")
	file := fileOf(`{"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4)
	size := len(file)
	open := func(by int) error { // with a number of bytes that is off by some, and no error
		return errorOf(NewFile(readerAtFunc(func(b []byte, off int64) (int, error) {
			return copy(b, file[off:]) + by, nil
		}), int64(size)))
	}
	require.ErrorIs(t, open(-1), io.ErrUnexpectedEOF, "fewer bytes without an error")
	require.ErrorContains(t, open(1), fmt.Sprintf("read %d of %d bytes", size+1, size))
	longer := wrappedFS{fstest.MapFS{"x": {Data: file}}, func(f fs.File) fs.File { return shorterFile{f} }}
	require.Equal(t, 1, must(OpenFS(longer, "x")).Len(), "its header says how long it is")
}

// A shorterFile is longer than it says.
type (
	shorterFile struct{ fs.File }
	shorterInfo struct{ fs.FileInfo }
)

func (s shorterFile) Stat() (fs.FileInfo, error) {
	info, err := s.File.Stat()
	return shorterInfo{info}, err
}

func (s shorterInfo) Size() int64 { return s.FileInfo.Size() - 1 }

// A lyingFile is a lying reader.
type lyingFile struct {
	fs.File
	n int
}

func (l lyingFile) Read([]byte) (int, error) { return l.n, nil }

// A lyingReader reports a wrong number of bytes.
type lyingReader int

func (r lyingReader) Read([]byte) (int, error) { return int(r), nil }
