package safetensors

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
)

// Write writes a whole file to w: a header with the tensors and the metadata,
// then their data. The bytes are those of the reference implementation: tensors
// by dtype, in descending order of the constants, then by name; metadata keys
// are sorted. nil metadata is left out, empty metadata is not.
//
// Data is copied from where the tensors have it, gathered and converted on the
// way, in constant extra memory. Refused, with nothing written, are tensors
// named __metadata__, names and metadata that are not valid UTF-8, tensors whose
// shape does not fit their data, and headers above 100,000,000 bytes.
func Write(w io.Writer, tensors map[string]Tensor, metadata map[string]string) error {
	c, err := newCheckpoint(tensors, metadata)
	if err != nil {
		return err
	}
	defer c.done()
	write := func(b []byte) error {
		_, err := writeFull(w, b)
		return err
	}
	if err := write(c.header); err != nil {
		return fmt.Errorf("safetensors: writing the header: %w", err)
	}
	pieces := c.pieces()
	lent := func(p piece) bool { return !p.small && c.streams[p.first].mayLend(w) }
	return inOrder(int64(len(pieces)), func(i int64) (*block, error) {
		if lent(pieces[i]) {
			return nil, nil
		}
		return c.read(pieces[i])
	}, func(i int64, b *block) error { return c.pass(pieces[i], b, write) })
}

// WriteFile writes a file as Write does, atomically and durably: the data goes
// to a temporary file beside it, which then takes its name, once all is on the
// disk. On any error, and if the process or the system dies, name is what it was
// before; only then can the temporary file, .safetensors-*.tmp, be left over.
//
// A new file has mode 0666 before the umask, a replaced one keeps its mode. If
// name is a symbolic link, the link is replaced. The file may be the very one
// that the tensors were opened from: they still refer to the old data. On
// Windows an open file cannot be replaced, which is an error.
func WriteFile(name string, tensors map[string]Tensor, metadata map[string]string) error {
	c, err := newCheckpoint(tensors, metadata)
	if err != nil {
		return err
	}
	defer c.done()
	f, err := createAtomic(name)
	if err != nil {
		return err
	}
	defer f.abort()
	if err := c.writeFile(f.File); err != nil {
		return fmt.Errorf("safetensors: writing %s: %w", name, bare(err))
	}
	if err := f.finish(); err != nil {
		return err
	}
	return f.commit()
}

// A checkpoint is a set of tensors that is about to be written: the header, and
// the streams of the tensors in file order. Their sources are acquired.
type checkpoint struct {
	header  []byte // with the prefix
	infos   []TensorInfo
	streams []*stream
}

// newCheckpoint checks all that can be checked before anything is written, and
// lays the tensors out. The caller calls done.
func newCheckpoint(tensors map[string]Tensor, metadata map[string]string) (*checkpoint, error) {
	c := &checkpoint{infos: make([]TensorInfo, 0, len(tensors))}
	for name, t := range tensors {
		c.infos = append(c.infos, TensorInfo{Name: name, DType: t.DType, Shape: t.Shape})
	}
	slices.SortFunc(c.infos, func(a, b TensorInfo) int {
		return cmp.Or(cmp.Compare(b.DType, a.DType), cmp.Compare(a.Name, b.Name))
	})
	var err error
	if c.header, err = encodeHeader(c.infos, metadata); err != nil {
		return nil, err
	}
	for i := range c.infos {
		s, err := tensors[c.infos[i].Name].stream()
		if err == nil {
			err = s.acquire()
		}
		if err != nil {
			c.done()
			return nil, fmt.Errorf("safetensors: tensor %s: %w", quote(c.infos[i].Name), bare(err))
		}
		c.streams = append(c.streams, s)
	}
	return c, nil
}

func (c *checkpoint) done() {
	for _, s := range c.streams {
		s.done()
	}
}

// size returns the bytes of the file.
func (c *checkpoint) size() int64 {
	size := int64(len(c.header))
	if n := len(c.infos); n > 0 {
		size += c.infos[n-1].DataOffsets[1]
	}
	return size
}

// A piece is what one write covers: n bytes of one tensor from pos on, or
// several small tensors as a whole.
type piece struct {
	first, last int // the tensors from first up to, not including, last
	pos, n      int64
	small       bool
}

// pieces cuts the data into pieces of up to blockSize bytes.
func (c *checkpoint) pieces() []piece {
	const small = bufferSize / 4
	var pieces []piece
	for i, s := range c.streams {
		if s.size >= small {
			for pos := int64(0); pos < s.size; pos += blockSize {
				pieces = append(pieces, piece{first: i, last: i + 1, pos: pos, n: min(blockSize, s.size-pos)})
			}
			continue
		}
		k := len(pieces) - 1
		if k < 0 || !pieces[k].small || pieces[k].n+s.size > bufferSize {
			pieces = append(pieces, piece{first: i, small: true})
			k++
		}
		pieces[k].last = i + 1
		pieces[k].n += s.size
	}
	return pieces
}

// read returns the bytes of a piece.
func (c *checkpoint) read(p piece) (*block, error) {
	return filled(p.n, func(b []byte) error {
		if !p.small {
			return c.nameTensor(p.first, c.streams[p.first].readAt(b, p.pos))
		}
		if done, err := c.readTogether(p, b); done {
			return c.nameTensor(p.first, err)
		}
		begin := c.infos[p.first].DataOffsets[0]
		return parallel(c.streams[p.first].workers(), int64(p.last-p.first), func(i int64) error {
			k := p.first + int(i)
			at := c.infos[k].DataOffsets
			return c.nameTensor(k, c.streams[k].readAt(b[at[0]-begin:at[1]-begin], 0))
		})
	})
}

// readTogether reads a piece of small tensors at once, if they all come as they
// are from one source that is better asked so.
func (c *checkpoint) readTogether(p piece, b []byte) (done bool, err error) {
	src := c.streams[p.first].src
	if src == nil || src.ranges == nil {
		return false, nil
	}
	order := make([]int, 0, p.last-p.first)
	for k := p.first; k < p.last; k++ {
		if s := c.streams[k]; s.src != src || s.from != nil || len(s.steps) > 1 {
			return false, nil
		}
		order = append(order, k)
	}
	slices.SortFunc(order, func(i, k int) int { return cmp.Compare(c.streams[i].off, c.streams[k].off) })
	begin := c.infos[p.first].DataOffsets[0]
	return true, src.ranges.ReadRanges(func(yield func(int64, []byte) bool) {
		for _, k := range order {
			at := c.infos[k].DataOffsets
			if !yield(src.base+c.streams[k].off, b[at[0]-begin:at[1]-begin]) {
				return
			}
		}
	})
}

// pass calls write with the bytes of a piece: those in b, or without one with
// the memory of the source.
func (c *checkpoint) pass(p piece, b *block, write func([]byte) error) error {
	if b != nil {
		return c.nameTensor(p.first, write(b.bytes))
	}
	return c.nameTensor(p.first, c.streams[p.first].lend(p.pos, p.n, write))
}

func (c *checkpoint) nameTensor(i int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("safetensors: writing tensor %s: %w", quote(c.infos[i].Name), bare(err))
}

// writeFile writes the file to f, several pieces at a time.
func (c *checkpoint) writeFile(f *os.File) error {
	if err := reserveSpace(f, c.size()); err != nil {
		return err
	}
	if _, err := f.WriteAt(c.header, 0); err != nil {
		return err
	}
	pieces := c.pieces()
	return parallel(c.workers(), int64(len(pieces)), func(i int64) (err error) {
		p := pieces[i]
		var b *block
		if p.small || !c.streams[p.first].lendable() {
			if b, err = c.read(p); err != nil {
				return err
			}
			defer b.free()
		}
		return c.pass(p, b, func(mem []byte) error {
			at := int64(len(c.header)) + c.infos[p.first].DataOffsets[0] + p.pos
			_, err := f.WriteAt(mem, at)
			startWriteback(f, at, p.n)
			return err
		})
	})
}

// workers returns how many pieces are written at the same time: more if they
// have to be waited for.
func (c *checkpoint) workers() int {
	n := copyWorkers()
	for _, s := range c.streams {
		n = max(n, s.workers())
	}
	return n
}
