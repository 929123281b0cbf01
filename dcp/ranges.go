package dcp

import (
	"fmt"
	"io"
	"iter"
	"sort"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// at returns the tensor that has the byte at off, nil if that is the end.
func (w *wholeFile) at(off int64) *storedTensor {
	i := sort.Search(len(w.tensors), func(i int) bool { return w.tensors[i].end > off })
	if i == len(w.tensors) {
		return nil
	}
	return &w.tensors[i]
}

// ReadAt implements io.ReaderAt.
func (w *wholeFile) ReadAt(p []byte, off int64) (n int, err error) {
	if off < int64(len(w.header)) {
		n = copy(p, w.header[off:])
	}
	if !w.opened.Load() {
		// Opening reads 64 KiB, however short the header is. It does not look at
		// the data, so none is read.
		clear(p[n:])
		return len(p), nil
	}
	for n < len(p) {
		begin := off + int64(n)
		t := w.at(begin)
		if t == nil {
			return n, io.EOF
		}
		part := p[n:]
		part = part[:min(int64(len(part)), t.end-begin)]
		r, at := t.region.narrow(begin-t.begin, int64(len(part)))
		read, err := r.tensor.ReadAt(part, at)
		n += read
		if err != nil {
			return n, t.failed(err)
		}
	}
	return n, nil
}

// failed returns the error of reading a tensor.
func (t *storedTensor) failed(err error) error {
	return fmt.Errorf("a piece of tensor %s: %w", quote(t.name), bare(err))
}

// ReadRanges implements safetensors.RangeReader: slices read what they select, and
// no gaps, which may be in other pieces. A slice of a tensor is read as slices of its
// pieces, so that each can be read as its source does best.
func (w *wholeFile) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	var l line
	for off, p := range ranges {
		t := w.at(off)
		if t == nil || int64(len(p)) > t.end-off {
			return io.ErrUnexpectedEOF // no tensor ends here
		}
		r, at := t.region.narrow(off-t.begin, int64(len(p)))
		if l.add(r, at, p) {
			continue
		}
		if err := l.read(); err != nil {
			return err
		}
		l = line{tensor: t, region: r, first: at, runs: append(l.runs[:0], p)}
	}
	return l.read()
}

// A line is runs of bytes of a region, all of one length and at one distance.
type line struct {
	tensor        *storedTensor
	region        *region
	first, stride int64 // offset of the first run, and from each to the next
	runs          [][]byte
}

// add adds a run, if it continues the line.
func (l *line) add(r *region, at int64, p []byte) bool {
	n := int64(len(l.runs))
	if n == 0 || l.region != r || len(l.runs[0]) != len(p) || (n+1)*int64(len(p)) > mem.BlockSize {
		return false
	}
	stride := at - l.first - (n-1)*l.stride
	if n > 1 && stride != l.stride {
		return false
	}
	l.stride = stride
	l.runs = append(l.runs, p)
	return true
}

// read fills the runs.
func (l *line) read() error {
	read, err := l.readTogether()
	for i := read; err == nil && i < len(l.runs); i++ {
		_, err = l.region.tensor.ReadAt(l.runs[i], l.first+int64(i)*l.stride)
	}
	if err != nil {
		return l.tensor.failed(err)
	}
	return nil
}

// readTogether reads runs as one slice of the region, and returns how many: none where
// several pieces share a run.
func (l *line) readTogether() (int, error) {
	n := int64(len(l.runs))
	if n < 2 {
		return 0, nil
	}
	// As columns of a matrix whose rows are a stride long. It starts before the first
	// run where it would otherwise end after the region.
	before := max(0, l.first+n*l.stride-l.region.tensor.Size())
	if before > l.first {
		n, before = n-1, 0
	}
	run := int64(len(l.runs[0]))
	slice, err := columns(l.region.tensor, l.first-before, n, l.stride, before, before+run)
	if err != nil {
		return 0, nil // it is not contiguous
	}
	b := mem.NewBlock(n * run)
	defer b.Free()
	if _, err := slice.ReadAt(b.Bytes, 0); err != nil {
		return 0, err
	}
	for i, p := range l.runs[:n] {
		copy(p, b.Bytes[int64(i)*run:])
	}
	return int(n), nil
}

// columns returns bytes of a contiguous tensor: those from first on as a matrix of so
// many rows, stride bytes long, and of that the columns from begin to end.
func columns(t safetensors.Tensor, first, rows, stride, begin, end int64) (safetensors.Tensor, error) {
	for _, step := range []func() (safetensors.Tensor, error){
		func() (safetensors.Tensor, error) { return t.Reshape(t.Len()) },
		func() (safetensors.Tensor, error) { return t.Bitcast(safetensors.U8) },
		func() (safetensors.Tensor, error) {
			return t.Slice(safetensors.Span(int(first), int(first+rows*stride)))
		},
		func() (safetensors.Tensor, error) { return t.Reshape(int(rows), int(stride)) },
		func() (safetensors.Tensor, error) {
			return t.Slice(safetensors.All(), safetensors.Span(int(begin), int(end)))
		},
	} {
		var err error
		if t, err = step(); err != nil {
			return t, err
		}
	}
	return t, nil
}
