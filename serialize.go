package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// Write writes a whole file to w, byte for byte as the reference implementation does: tensors in
// descending order of [DTypes], then by name; metadata keys sorted. If metadata is nil, the file
// has none. Tensors named __metadata__, invalid UTF-8, and headers above 100,000,000 bytes are
// errors, with nothing written. Errors of w are wrapped.
func Write(w io.Writer, tensors map[string]Tensor, metadata map[string]string) error {
	o, err := newOutFile(tensors, metadata, 0, new(resultPool))
	if err != nil {
		return prefixed(err)
	}
	defer o.release()
	return prefixed(o.writeTo(w))
}

// WriteFile writes a file as Write does, atomically and durably: to a new file in the
// same directory, which is flushed and renamed. After a failure or a crash, name is
// unchanged. One exception: if flushing the directory fails, name is already the new
// file, but a crash may restore the old one. A killed process may leave
// .safetensors-*.tmp.
//
// Until WriteFile returns, neither the map nor the data may change. The tensors may
// come from the file itself. A new file has mode 0666 before the umask, a replaced one
// keeps its mode; a symbolic link is replaced. On Windows an open file cannot be
// replaced.
//
// Some file systems, such as mounts of buckets and of HDFS, lack calls that others have. WriteFile
// needs a rename, and writes at any offset of a file. If the file system refuses one of these, the
// error says so: use Write with an io.Writer instead. WriteFile can do without the other calls:
// reserving space, permissions, locks and flushes. A file system without flushes may lose the new
// file in a crash of the machine, although WriteFile has returned nil.
func WriteFile(name string, tensors map[string]Tensor, metadata map[string]string) error {
	return Saver{}.WriteFile(name, tensors, metadata)
}

// An outFile is a file that is being written: the header, and the streams of the tensors in file
// order. The streams hold their sources open, unless some tensors are computed.
type outFile struct {
	header []byte // prefix and header
	infos  []TensorInfo
	bounds []int64 // offset at which the data of each tensor starts, then the end of the last one
	streams
	all computations
}

// newOutFile checks everything that can be checked before anything is written, makes the header and
// opens the streams. memory is the pool that holds the results of computed tensors. The caller must
// call release. align is as for encodeHeader.
func newOutFile(tensors map[string]Tensor, metadata map[string]string, align int, memory *resultPool) (*outFile, error) {
	o := &outFile{all: computations{memory: memory}}
	if err := o.layOut(tensors, metadata, align); err != nil {
		return nil, err
	}
	for i := range o.infos {
		s, err := tensors[o.infos[i].Name].stream(&o.all, nil)
		if err != nil {
			o.release()
			return nil, tensorError(o.infos[i].Name, err)
		}
		o.streams = append(o.streams, s)
	}
	if o.computes() {
		o.release()
	}
	return o, nil
}

// layOut sorts the tensors into the order of a file, and makes its header. It refuses a zero Tensor.
func (o *outFile) layOut(tensors map[string]Tensor, metadata map[string]string, align int) (err error) {
	o.infos = make([]TensorInfo, 0, len(tensors))
	for name, t := range tensors {
		o.infos = append(o.infos, TensorInfo{Name: name, DType: t.dtype, Shape: t.shape})
	}
	slices.SortFunc(o.infos, func(a, b TensorInfo) int {
		return cmp.Or(compareDTypes(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
	for _, info := range o.infos {
		if err := (Tensor{dtype: info.DType}).check(); err != nil {
			return tensorError(info.Name, err)
		}
	}
	o.header, o.bounds, err = encodeHeader(nil, o.infos, metadata, align)
	return err
}

// computes reports whether some tensors are computed.
func (o *outFile) computes() bool { return len(o.all.list) > 0 }

// writeTo writes the file to w.
func (o *outFile) writeTo(w io.Writer) error {
	write := func(b []byte) error {
		_, err := writeFull(w, b)
		return err
	}
	if err := write(o.header); err != nil {
		return fmt.Errorf("writing the header: %w", err)
	}
	defer o.all.ahead()()
	pieces := o.pieces()
	return parallel.InOrder(blocksAhead(o.block()), pieces.count, func(i int64) (*mem.Block, error) {
		p := pieces.at(i)
		if _, lent := lends(o.streams[p.first], w); lent && !p.small {
			return nil, nil
		}
		return o.read(p)
	}, func(i int64, b *mem.Block) error {
		defer b.Free()
		p := pieces.at(i)
		if b != nil {
			return o.nameTensor(p.first, write(b.Bytes))
		}
		_, err := o.streams[p.first].lend(p.pos, p.n, write)
		return o.nameTensor(p.first, err)
	}, (*mem.Block).Free)
}

// A piece is the extent of one write: n bytes of one tensor from pos on, or several small
// tensors, each whole.
type piece struct {
	first, last int // tensors from first up to, not including, last
	pos, n      int64
	small       bool
}

// pieces are the pieces of a file, in order. They are computed from their index instead of
// listed, because a server may claim a tensor of any size.
type pieces struct {
	runs  []pieceRun
	count int64
}

// A pieceRun stands for all pieces of one tensor, or for a single piece of small tensors.
type pieceRun struct {
	piece        // the first piece; all have its length, except for the last one
	number int64 // index of the first piece
	size   int64 // size of all pieces in bytes
}

// at returns the piece with index i.
func (all *pieces) at(i int64) piece {
	r := &all.runs[sort.Search(len(all.runs), func(k int) bool { return all.runs[k].number > i })-1]
	p := r.piece
	p.pos = (i - r.number) * p.n
	p.n = min(p.n, r.size-p.pos)
	return p
}

// pieces cuts the data into pieces: of up to mem.BlockSize bytes if the stream can lend its memory,
// otherwise of the number of bytes that are best read in one call. No piece is empty, and neither
// is its first tensor.
func (o *outFile) pieces() *pieces {
	const small = mem.BufferSize / 4
	all := new(pieces)
	for i, s := range o.streams {
		size := o.bounds[i+1] - o.bounds[i]
		switch k := len(all.runs) - 1; {
		case size == 0:
		case size >= small:
			most := s.block()
			if l, ok := s.(*storedStream); ok && l.lendable() {
				most = mem.BlockSize
			}
			all.runs = append(all.runs, pieceRun{piece{first: i, last: i + 1, n: most}, all.count, size})
			all.count += parallel.BlockCount(size, most)
		case k >= 0 && all.runs[k].small && all.runs[k].size+size <= mem.BufferSize && rangesOf(s) == rangesOf(o.streams[i-1]):
			r := &all.runs[k]
			r.last, r.n, r.size = i+1, r.n+size, r.size+size
		default:
			all.runs = append(all.runs, pieceRun{piece{first: i, last: i + 1, n: size, small: true}, all.count, size})
			all.count++
		}
	}
	return all
}

// rangesOf returns the source of a stream if it is read from a RangeReader, otherwise nil. The
// result must be the same for all tensors of a piece, because readTogether reads a piece in one
// call.
func rangesOf(s stream) *source {
	if stored, ok := s.(*storedStream); ok && stored.src.ranges != nil {
		return stored.src
	}
	return nil
}

// read returns the bytes of a piece. The caller frees the block.
func (o *outFile) read(p piece) (*mem.Block, error) {
	return mem.Filled(p.n, func(b []byte) error {
		if !p.small {
			return o.nameTensor(p.first, o.streams[p.first].readAt(b, p.pos))
		}
		if read, err := o.readTogether(p, b); read {
			return o.nameTensor(p.first, err)
		}
		return parallel.Do(o.streams[p.first].workers(), int64(p.last-p.first), func(i int64) error {
			k := p.first + int(i)
			return o.nameTensor(k, o.streams[k].readAt(o.part(p, b, k), 0))
		})
	})
}

// part returns the bytes of tensor k. b holds the bytes of p, a piece of small tensors.
func (o *outFile) part(p piece, b []byte, k int) []byte {
	begin, end := o.bounds[k]-o.bounds[p.first], o.bounds[k+1]-o.bounds[p.first]
	return b[begin:end:end]
}

// readTogether reads a piece of small tensors in one call, if they all come unchanged from one
// RangeReader. Otherwise the result read is false.
func (o *outFile) readTogether(p piece, b []byte) (read bool, err error) {
	type part struct {
		*storedStream
		dst []byte
	}
	var src *source
	parts := make([]part, 0, p.last-p.first)
	for k := p.first; k < p.last; k++ {
		dst := o.part(p, b, k)
		if len(dst) == 0 {
			continue // ReadRanges must not get an empty range
		}
		s, ok := o.streams[k].(*storedStream)
		if !ok || s.src.ranges == nil || !s.plain() || src != nil && s.src != src {
			return false, nil
		}
		src = s.src
		parts = append(parts, part{s, dst})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.off, b.off) })
	for i := 1; i < len(parts); i++ {
		if parts[i].off < parts[i-1].off+int64(len(parts[i-1].dst)) { // tensors with the same data overlap
			return false, nil
		}
	}
	if err := parts[0].use(); err != nil { // keeps the source open for all parts, which share it
		return true, err
	}
	defer parts[0].done()
	off := int64(-1)
	if len(parts) == 1 {
		off = parts[0].off
	}
	err = src.locate(off, src.ranges.ReadRanges(func(yield func(int64, []byte) bool) {
		for _, p := range parts {
			if !yield(src.base+p.off, p.dst) {
				return
			}
		}
	}))
	for i := 0; i < len(parts) && err == nil; i++ {
		err = parts[i].tell(0, int64(len(parts[i].dst)))
	}
	return true, err
}

func (o *outFile) nameTensor(i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("writing %w", tensorError(o.infos[i].Name, err))
}

// writeFile writes the file to f, several pieces concurrently.
func (o *outFile) writeFile(f *osfile.Atomic) error {
	if err := f.Reserve(int64(len(o.header)) + o.bounds[len(o.infos)]); err != nil {
		return err
	}
	if _, err := f.WriteAt(o.header, 0); err != nil {
		return err
	}
	defer o.all.ahead()()
	pieces, memory := o.pieces(), o.all.pool()
	return parallel.Do(o.workers(), pieces.count, func(i int64) error {
		p := pieces.at(i)
		at := int64(len(o.header)) + o.bounds[p.first] + p.pos
		write := func(data []byte) error {
			n, err := f.WriteAt(data, at)
			at += int64(n)
			return err
		}
		if !p.small {
			if lent, err := o.streams[p.first].lend(p.pos, p.n, write); lent || err != nil {
				return o.nameTensor(p.first, err)
			}
		}
		defer memory.enter(memoryFor(o.streams[p.first], p.n))()
		b, err := o.read(p)
		if err != nil {
			return err
		}
		defer b.Free()
		return o.nameTensor(p.first, write(b.Bytes))
	})
}

// memoryFor returns the number of bytes of memory that a read of n bytes of s takes. For a joined
// tensor it is an estimate, because its pieces may have different sources.
func memoryFor(s stream, n int64) int64 {
	switch s := s.(type) {
	case *storedStream:
		return s.memoryFor(n)
	case *joinedStream:
		return memoryFor(s.streams[0], n)
	}
	return n
}

// FileOf returns tensors and metadata as a File with the layout that Write would write. Its tensors
// are those in the map, with their views. The method Close calls the func close once, unless that
// func is nil, and waits for nothing. Errors are those of Write.
func FileOf(tensors map[string]Tensor, metadata map[string]string, close func() error) (*File, error) {
	var o outFile
	if err := o.layOut(tensors, metadata, 0); err != nil {
		return nil, prefixed(err)
	}
	t, err := parseHeader(o.header[prefixSize:], -1)
	if err != nil {
		return nil, prefixed(err)
	}
	f := newFile(t, &source{release: close})
	for _, info := range o.infos { // the entries have this order
		f.parts[0].tensors = append(f.parts[0].tensors, tensors[info.Name])
	}
	return f, nil
}

// WriteFile does the same as the func [WriteFile], with the settings of s.
func (s Saver) WriteFile(name string, tensors map[string]Tensor, metadata map[string]string) error {
	return prefixed(s.writeFile(name, tensors, metadata))
}

func (s Saver) writeFile(name string, tensors map[string]Tensor, metadata map[string]string) error {
	settings, err := s.settings("")
	if err != nil {
		return err
	}
	o, err := newOutFile(tensors, metadata, s.Align, new(resultPool))
	if err != nil {
		return err
	}
	defer o.release()
	return settings.Save(name, o.writeFile)
}
