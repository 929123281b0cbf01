package apitest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// watched returns a tensor that is watched.
func watched(x Tensor, read func(n int) error) Tensor {
	return Watch(map[string]Tensor{"x": x}, read)["x"]
}

// TestWatchNil: without a func to call, Watch returns the tensors as they are, and they can be read.
func TestWatchNil(t *testing.T) {
	x := must(NewTensor(F32, []int{2}, []float32{1, 2}))
	got, err := Append[float32](nil, watched(x, nil))
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2}, got)
}

// A derived tensor is made from another one. bytes is how much of that one it reads.
type derived struct {
	Tensor
	bytes int64
}

// derivedOf lists what a program may make of a tensor of F32, which has 64 rows and at least
// 20 columns.
func derivedOf(x Tensor) map[string]derived {
	whole, elements := x.Size(), x.Len()
	column := must(x.Slice(All(), Span(10, 20)))
	reshaped := must(must(x.Transpose()).Reshape(64, elements/64))
	return map[string]derived{
		"whole":                  {x, whole},
		"rows":                   {must(x.Slice(Span(3, 5))), whole / 32},
		"columns":                {column, 64 * 10 * 4},
		"transposed":             {must(x.Transpose()), whole},
		"narrowed":               {must(x.Convert(BF16)), whole},
		"widened":                {must(column.Convert(F64)), 64 * 10 * 4},
		"converted twice":        {must(must(x.Convert(F8_E4M3)).Convert(F64)), whole},
		"cast":                   {must(x.Bitcast(U8)), whole},
		"reshaped":               {must(x.Reshape(elements/64, 64)), whole},
		"transposed, reshaped":   {must(must(x.Transpose()).Reshape(elements)), whole},
		"reshaped, a part":       {must(reshaped.Part(0, 1, 2)), whole / 2},
		"reshaped and converted": {must(reshaped.Convert(F16)), whole},
		"joined":                 {must(Concat(1, x, column)), whole + 64*10*4},
		"joined and converted":   {must(must(Concat(0, x, x)).Convert(BF16)), 2 * whole},
		"of no elements":         {must(x.Slice(Span(0, 0))), 0},
	}
}

// TestWatch: every operation tells of each byte once, whatever was made of the tensor.
func TestWatch(t *testing.T) {
	for kind, source := range sourcesOf(t, counting(F32, 64, 96)) {
		var n atomic.Int64
		x := watched(source, func(m int) error {
			if m <= 0 {
				return errors.New("nothing was read")
			}
			n.Add(int64(m))
			return nil
		})
		require.Equal(t, source.String(), x.String())
		for made, y := range derivedOf(x) {
			for operation, do := range readings(t.TempDir()) {
				n.Store(0)
				must(do(y.Tensor))
				require.Equal(t, y.bytes, n.Load(), "%s of %s, %s", operation, kind, made)
			}
		}
		n.Store(0)
		must(x.ReadAt(make([]byte, 100), 1000))
		require.EqualValues(t, 100, n.Load(), kind)
	}
}

// TestWatchOfBits: a few elements, and those of less than a byte, count exactly, too.
func TestWatchOfBits(t *testing.T) {
	few := 0
	_, err := Append[uint16](nil, must(watched(counting(F32, 3), func(m int) error { few += m; return nil }).Convert(BF16)))
	require.NoError(t, err)
	require.Equal(t, 12, few)
	for _, d := range []DType{F4, F6_E2M3} {
		var n atomic.Int64
		x := watched(must(NewTensor(d, []int{3, 1 << 20}, make([]byte, 3<<20/8*d.Bits()))), func(m int) error { n.Add(int64(m)); return nil })
		y := must(x.Convert(F32))
		must(y.WriteTo(io.Discard))
		require.Equal(t, x.Size(), n.Load())
		n.Store(0)
		r := io.NewSectionReader(y, 0, y.Size())
		must(io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, make([]byte, 1<<19+1)))
		require.Equal(t, x.Size(), n.Load(), "windows that start within elements")
	}
}

// TestWatchEnds: the error of read ends each operation, comes out of it, and nothing is
// left behind. A panic is raised where the operation was called.
func TestWatchEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	for kind, source := range sourcesOf(t, counting(F32, 64, 96)) {
		for made, y := range derivedOf(source) {
			if y.bytes == 0 {
				continue
			}
			dir := t.TempDir()
			for operation, do := range readings(dir) {
				_, err := do(watched(y.Tensor, func(int) error { return context.Canceled }))
				require.ErrorIs(t, err, context.Canceled, "%s of %s, %s", operation, kind, made)
				require.PanicsWithValue(t, "read", func() {
					do(watched(y.Tensor, func(int) error { panic("read") }))
				}, "%s of %s, %s", operation, kind, made)
				if operation == "Create" { // the Writer may have got all bytes before the panic
					os.Remove(filepath.Join(dir, "x"))
				}
			}
			requireEmptyDir(t, dir)
		}
	}
	requireGoroutines(t, before)
	x := watched(counting(U32, 4), func(int) error { _, err := Parse(nil); return err })
	err := Write(io.Discard, map[string]Tensor{"x": x}, nil)
	require.EqualError(t, err, "safetensors: writing tensor \"x\": file of 0 bytes is shorter than the 8 bytes of the header length (at byte 0)", "one prefix")
}

// TestWatchEndsSoon: after the error nothing more is read, but what is being read.
func TestWatchEndsSoon(t *testing.T) {
	x, err := NewTensorAt(U8, []int{1 << 20, 1 << 20}, endlessReader{}) // which nothing could read to the end
	require.NoError(t, err)
	for name, write := range writers {
		var n atomic.Int64
		err := write(io.Discard, watched(x, func(m int) error {
			if n.Add(int64(m)) > 100<<20 {
				return context.Canceled
			}
			return nil
		}))
		require.ErrorIs(t, err, context.Canceled, name)
		require.Less(t, n.Load(), int64(1<<30), name)
	}
}

// TestWatchComputed: the parts of a computed tensor, as a fused projection is split, in another
// order, and joined again, take one call of its func for each file, also if they are watched.
func TestWatchComputed(t *testing.T) {
	x := counting(F32, 64, 96)
	y, calls := counted[byte](x)
	parts := map[string]Tensor{"whole": y, "column": must(y.Slice(All(), Span(2, 4))), "half": must(y.Convert(BF16))}
	for i := range 4 {
		parts[fmt.Sprint(i)] = must(y.Part(0, i, 4))
	}
	parts["turned"] = must(Concat(0, parts["2"], parts["0"], parts["1"]))
	var n atomic.Int64
	all := Watch(parts, func(m int) error { n.Add(int64(m)); return nil })
	all = Watch(all, func(int) error { return nil })
	want := int64(0)
	for _, x := range parts {
		want += x.Size()
	}
	file := saved(all, nil)
	require.EqualValues(t, 1, calls.Swap(0))
	require.Equal(t, want, n.Load())
	require.NoError(t, WriteFile(filepath.Join(t.TempDir(), "x"), parts, nil))
	require.EqualValues(t, 1, calls.Load())
	requireTensors(t, parts, must(Parse(file)))
}

// TestWatchIsTheSame: what is watched is the same to View, Tie, Concat, and FileOf.
func TestWatchIsTheSame(t *testing.T) {
	nothing := func(int) error { return errors.New("a view counts nothing") }
	x := counting(U32, 4, 6)
	require.Same(t, &must(View[uint32](x))[0], &must(View[uint32](watched(x, nothing)))[0])

	joined := must(Concat(0, must(x.Slice(Span(2, 4))), x))
	tensors := map[string]Tensor{"x": x, "joined": joined, "flat": must(must(x.Transpose()).Reshape(24))}
	for name, y := range Watch(tensors, nothing) {
		tensors[name+" watched"] = y
		tensors[name+" watched again"] = watched(y, nothing)
	}
	kept, noted := Tie(tensors, nil)
	require.Len(t, kept, 3)
	require.Equal(t, "joined", noted["joined watched again"])

	halves := Watch(map[string]Tensor{"0": must(x.Part(0, 0, 2)), "1": must(x.Part(0, 1, 2))}, nothing)
	must(View[uint32](must(Concat(0, halves["0"], halves["1"]))))

	var first, second int
	joined = must(Concat(0,
		watched(must(x.Part(0, 0, 2)), func(n int) error { first += n; return nil }),
		watched(must(x.Part(0, 1, 2)), func(n int) error { second += n; return nil })))
	require.Equal(t, appended[uint32](x), appended[uint32](joined))
	require.Equal(t, []int{48, 48}, []int{first, second})

	f := must(FileOf(Watch(map[string]Tensor{"x": x}, nothing), nil, nil))
	require.ErrorContains(t, errorOf(Elements[uint32](f, "x")), "a view counts nothing")
	require.Empty(t, Watch(nil, nothing))
	zero := Watch(map[string]Tensor{"": {}}, nothing)[""]
	require.ErrorContains(t, errorOf(Append[byte](nil, zero)), "the zero Tensor")
}

// TestWatchSeveral writes small tensors, that are read in one call, and large ones, from
// one file: each is told of.
func TestWatchSeveral(t *testing.T) {
	tensors := checkpointOf(40)
	tensors["large"] = counting(U32, 1<<20)
	tensors["empty"] = counting(U32, 0)
	name := writeTemp(t, tensors)
	data := must(os.ReadFile(name))
	for kind, r := range map[string]io.ReaderAt{
		"reader": bytes.NewReader(data),
		"ranges": rangesOf(bytes.NewReader(data)),
	} {
		f := must(NewFile(r, int64(len(data))))
		var mu sync.Mutex
		var n int
		fails := false
		all := Watch(maps.Collect(f.Tensors()), func(m int) error {
			mu.Lock()
			defer mu.Unlock()
			if n += m; fails {
				return context.Canceled
			}
			return nil
		})
		require.NoError(t, Write(io.Discard, all, nil))
		require.Equal(t, 40*64+4<<20, n, kind)
		fails = true
		require.ErrorIs(t, Write(io.Discard, all, nil), context.Canceled)
	}
}
