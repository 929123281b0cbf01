package safetensors

import (
	"bytes"
	"encoding/binary"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParse checks that no file makes Parse panic, that the ways to read a
// header agree, and that what is accepted keeps its promises and survives being
// rewritten.
func FuzzParse(f *testing.F) {
	for _, c := range conformanceCases(f) {
		f.Add(c.File)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		other, otherErr := NewFile(bytes.NewReader(data), int64(len(data)))
		require.Equal(t, err == nil, otherErr == nil, "%v, %v", err, otherErr)
		header, headerErr := ReadHeader(bytes.NewReader(data))
		if len(data) >= prefixSize {
			if length, err := checkHeaderLength(data, int64(len(data))); err == nil {
				parseBoth(t, data[prefixSize:][:length], int64(len(data))-prefixSize-length)
			}
		}
		if err != nil {
			return
		}
		require.NoError(t, headerErr)
		require.Equal(t, file.parts[0].header(), header)
		require.Equal(t, other.parts[0].header(), header)
		var out bytes.Buffer
		require.NoError(t, Write(&out, maps.Collect(file.Tensors()), file.Metadata()))
		again, err := Parse(out.Bytes())
		require.NoError(t, err)
		sameTensors(t, file, again)
		require.Equal(t, file.Metadata(), again.Metadata())
		var twice bytes.Buffer
		require.NoError(t, Write(&twice, maps.Collect(again.Tensors()), again.Metadata()))
		require.Equal(t, out.Bytes(), twice.Bytes(), "what we write is what we would write")
	})
}

// sameTensors checks that two files hold the same tensors, in whatever order.
func sameTensors(t testing.TB, want, got *File) {
	require.Len(t, maps.Collect(got.Tensors()), len(maps.Collect(want.Tensors())))
	for name, x := range want.Tensors() {
		y, err := got.Tensor(name)
		require.NoError(t, err)
		require.Equal(t, x.DType(), y.DType())
		require.Equal(t, x.Shape(), y.Shape())
		wantBytes, err := View[byte](x)
		require.NoError(t, err)
		gotBytes, err := View[byte](y)
		require.NoError(t, err)
		require.True(t, bytes.Equal(wantBytes, gotBytes))
	}
}

// FuzzRoundTrip writes tensors of any names, dtypes and shapes and reads them
// back, from memory and through a Writer.
func FuzzRoundTrip(f *testing.F) {
	f.Add("a", "b\x00\"é", byte(18), byte(2), []byte{2, 3}, []byte{1, 0}, "k", "v")
	f.Add("", "\u2028", byte(3), byte(22), []byte{4}, []byte{}, "", "")
	f.Fuzz(func(t *testing.T, name1, name2 string, dtype1, dtype2 byte, shape1, shape2 []byte, key, value string) {
		make := func(dtype byte, dims []byte, fill byte) (Tensor, bool) {
			shape := []int{}
			for _, d := range dims[:min(len(dims), 5)] {
				shape = append(shape, int(d)%9)
			}
			size, broken := checkShape(DType(dtype), shape)
			if broken != "" {
				return Tensor{}, false
			}
			x, err := NewTensor(DType(dtype), shape, bytes.Repeat([]byte{fill}, int(size)))
			require.NoError(t, err)
			return x, true
		}
		x, ok1 := make(dtype1, shape1, 0x5a)
		y, ok2 := make(dtype2, shape2, 0xa5)
		if !ok1 || !ok2 {
			return
		}
		tensors := map[string]Tensor{name1: x, name2: y}
		var out bytes.Buffer
		if err := Write(&out, tensors, map[string]string{key: value}); err != nil {
			require.Zero(t, out.Len())
			return
		}
		file, err := Parse(out.Bytes())
		require.NoError(t, err)
		require.Equal(t, map[string]string{key: value}, file.Metadata())
		require.Zero(t, binary.LittleEndian.Uint64(out.Bytes())%headerAlignment)
		for name, want := range tensors {
			got, err := file.Tensor(name)
			require.NoError(t, err)
			require.Equal(t, want.DType(), got.DType())
			require.Equal(t, want.Shape(), got.Shape())
			wantBytes, err := View[byte](want)
			require.NoError(t, err)
			gotBytes, err := View[byte](got)
			require.NoError(t, err)
			require.True(t, bytes.Equal(wantBytes, gotBytes))
		}
		var streamed bytes.Buffer
		header, err := ReadHeader(bytes.NewReader(out.Bytes()))
		require.NoError(t, err)
		w, err := NewWriter(&streamed, header)
		require.NoError(t, err)
		for _, info := range header.Tensors {
			dst, err := w.Tensor(info.Name)
			require.NoError(t, err)
			_, err = tensors[info.Name].WriteTo(dst)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.Equal(t, out.Bytes(), streamed.Bytes())
	})
}
