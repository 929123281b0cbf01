package quant_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

var errDisk = errors.New("the disk failed")

// A disk counts its reads. It fails from one of its reads on, or only at that read. If the number
// of that read is 0, it never fails.
type disk struct {
	reads, bytes, failFrom atomic.Int64
	once                   bool
}

type onDisk struct {
	io.ReaderAt
	*disk
}

func (r onDisk) ReadAt(p []byte, off int64) (int, error) {
	if n, from := r.reads.Add(1), r.failFrom.Load(); from > 0 && (n == from || n > from && !r.once) {
		return 0, errDisk
	}
	r.bytes.Add(int64(len(p)))
	return r.ReaderAt.ReadAt(p, off)
}

// moved returns the same tensors, read from a disk.
func moved(t *testing.T, tensors map[string]safetensors.Tensor, d *disk) map[string]safetensors.Tensor {
	t.Helper()
	all := map[string]safetensors.Tensor{}
	for name, x := range tensors {
		data := elements[byte](t, x)
		all[name] = must(safetensors.NewTensorAt(x.DType(), x.Shape(), onDisk{bytes.NewReader(data), d}))
	}
	return all
}

// eachFault calls work with a disk that fails from its first read on, then with one that fails from
// its second read on, and so on, until there are fewer reads. work returns the error of the
// operation that it tests.
func eachFault(t *testing.T, title string, work func(d *disk) error) {
	t.Helper()
	for at := int64(1); ; at++ {
		d := new(disk)
		d.failFrom.Store(at)
		err := work(d)
		if d.reads.Load() < at {
			require.NoError(t, err, title)
			return
		}
		require.ErrorIs(t, err, errDisk, "%s: from read %d on", title, at)
		require.Equal(t, 1, strings.Count(err.Error(), "safetensors: "), err)
	}
}

// TestEveryFault lets each read of whole results and of columns fail. That is an error, which is
// not cached.
func TestEveryFault(t *testing.T) {
	for _, w := range twins(7) {
		eachFault(t, w.title, func(d *disk) error {
			plain, err := quant.Dequantize(moved(t, w.tensors, d), []byte(w.config))
			if err != nil {
				return err
			}
			x := plain[w.name]
			got, err := safetensors.Append[float32](nil, x)
			if err != nil {
				require.ErrorContains(t, err, `tensor "a.`)
				d.failFrom.Store(0)
				got = elements[float32](t, x)
			}
			requireSame(t, w.elements(), got, w.title)
			if err != nil {
				return err
			}
			rank := len(w.shape)
			ranges := slices.Repeat([]safetensors.Range{safetensors.All()}, rank)
			ranges[rank-1] = safetensors.Span(w.shape[rank-1]/2, w.shape[rank-1]/2+1)
			if _, err = safetensors.Append[float32](nil, must(x.Slice(ranges...))); err != nil {
				return err
			}
			ranges[rank-2], ranges[rank-1] = safetensors.Span(0, min(2, w.shape[rank-2])), safetensors.Span(1, 2)
			_, err = safetensors.Append[byte](nil, must(must(x.Bitcast(safetensors.U8)).Slice(ranges...)))
			return err
		})
	}
}

// TestOneFault: if one of the reads for many blocks fails, the whole operation returns its error.
func TestOneFault(t *testing.T) {
	d := &disk{once: true}
	x := dequantized(t, moved(t, checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 1<<13, 8), zeroed("a.weight_scale_inv", safetensors.F32, 1<<6, 1)), d), method("fp8", object{}))["a.weight"]
	part, err := x.Slice(safetensors.Span(0, 1<<13).By(200), safetensors.Span(7, 8)) // the elements lie in several blocks
	require.NoError(t, err)
	elements[float32](t, part)
	reads := d.reads.Load()
	require.Greater(t, reads, int64(2))
	for at := range reads {
		d.reads.Store(0)
		d.failFrom.Store(at + 1)
		require.ErrorIs(t, errorOf(safetensors.Append[float32](nil, part)), errDisk, at)
	}
}

// TestEveryFaultOfQuantize does what TestEveryFault does for the results of Quantize.
func TestEveryFaultOfQuantize(t *testing.T) {
	in := randomWeights(rand.New(rand.NewPCG(1, 2)), safetensors.BF16, 300, 256)
	for _, scheme := range schemes {
		eachFault(t, string(scheme), func(d *disk) error {
			q, _, err := quant.Quantize(moved(t, in, d), quant.Recipe{Scheme: scheme})
			if err != nil {
				return err
			}
			for _, x := range q {
				if _, err := safetensors.Append[byte](nil, x); err != nil {
					return err
				}
				if len(x.Shape()) != 2 {
					continue
				}
				column := must(x.Slice(safetensors.All(), safetensors.Span(0, 1)))
				if _, err := safetensors.Append[byte](nil, column); err != nil {
					return err
				}
			}
			return nil
		})
	}
}
