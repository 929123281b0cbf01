package torch

import (
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// A gather is an io.ReaderAt of the elements of a layout, in their order. It gathers them from a
// storage whose elements have width bytes each. Its memory is one buffer of fixed size, however far
// apart the elements are.
type gather struct {
	layout
	storage safetensors.Tensor
	width   int64
}

// maxWidth is the size in bytes of the largest element of any dtype.
const maxWidth = 16

// ReadAt fills p with the bytes from off on. It relies on the Tensor to ask only for bytes that
// exist.
func (g gather) ReadAt(p []byte, off int64) (int, error) {
	for done := 0; done < len(p); {
		rest, at := p[done:], off+int64(done)
		first, skip := at/g.width, at%g.width
		if whole := int64(len(rest)) / g.width * g.width; skip == 0 && whole > 0 {
			if err := g.elements(rest[:whole], first); err != nil {
				return 0, err
			}
			done += int(whole)
			continue
		}
		var one [maxWidth]byte // an element of which p needs only some bytes
		if err := g.elements(one[:g.width], first); err != nil {
			return 0, err
		}
		done += copy(rest, one[skip:g.width])
	}
	return len(p), nil
}

// elements fills dst with the elements of the layout from index first on.
func (g gather) elements(dst []byte, first int64) error {
	return g.fillDim(dst, 0, g.offset, first, first+int64(len(dst))/g.width)
}

// fillDim fills dst with the elements from index first up to last, in row-major order of the
// dimensions from dim on. base is the position in the storage of the element whose indices in these
// dimensions are all 0. fillDim splits the elements into boxes. A box consists of a range of one
// dimension, and of all indices of the dimensions after it.
func (g gather) fillDim(dst []byte, dim int, base, first, last int64) error {
	if dim == len(g.shape) {
		return g.read(dst, base, nil)
	}
	size := int64(1) // number of elements per index of dim
	for _, n := range g.shape[dim+1:] {
		size *= int64(n)
	}
	for first < last {
		a, end := first/size, last/size*size
		at := base + a*g.strides[dim]
		var err error
		if first%size == 0 && end > first {
			err = g.read(dst[:(end-first)*g.width], at, g.box(dim, (end-first)/size))
		} else {
			end = min(last, (a+1)*size)
			err = g.fillDim(dst[:(end-first)*g.width], dim+1, at, first-a*size, end-a*size)
		}
		if err != nil {
			return err
		}
		dst, first = dst[(end-first)*g.width:], end
	}
	return nil
}

// A loop is one dimension of a box. It visits n indices. From one to the next, the position
// advances by src elements in the storage, and by dst bytes in the result.
type loop struct{ n, src, dst int64 }

// box returns the loops over n indices of a dimension and over all indices of the dimensions after
// it, in the order of the result.
func (g gather) box(dim int, n int64) (loops []loop) {
	inner := g.width
	for i := len(g.shape) - 1; i >= dim; i-- {
		steps := int64(g.shape[i])
		if i == dim {
			steps = n
		}
		if steps > 1 {
			loops = append(loops, loop{steps, g.strides[i], inner})
		}
		inner *= steps
	}
	slices.Reverse(loops)
	return loops
}

var (
	// gatherBuffer is the size in bytes of the buffer of a gather. Tests set it to less.
	gatherBuffer = int64(mem.BufferSize)

	// nearby is the largest distance in bytes at which elements are read together, with all bytes
	// between them. Tests set it to less.
	nearby = int64(64 << 10)
)

// sparsest limits how sparse a long piece of the storage may be: it is read as a whole only if at
// least the fraction 1/sparsest of its elements is needed.
const sparsest = 16

// together reports whether all elements from the first to the last of loops fit in the buffer and
// should be read in one piece. span is the length of that piece in elements.
func (g gather) together(loops []loop) (span int64, ok bool) {
	span, distinct := int64(1), int64(1)
	for _, l := range loops {
		span += (l.n - 1) * l.src
		if l.src > 0 {
			distinct *= l.n
		}
	}
	return span, span <= nearby/g.width || span <= gatherBuffer/2/g.width && span/sparsest <= distinct
}

// read fills dst with the elements of loops, which start at element base of the storage.
func (g gather) read(dst []byte, base int64, loops []loop) error {
	if span, ok := g.together(loops); ok {
		return g.piece(dst, base, 1, span, span, loops)
	}
	// The loop with the largest steps is split.
	widest := 0
	for i, l := range loops {
		if l.src > loops[widest].src {
			widest = i
		}
	}
	l := loops[widest]
	inner := slices.Delete(slices.Clone(loops), widest, widest+1)
	span, ok := g.together(inner)
	for i := int64(0); i < l.n; {
		n := int64(1)
		var err error
		switch at, into := base+i*l.src, dst[i*l.dst:]; {
		case !ok:
			err = g.read(into, at, inner)
		case l.src <= span: // the steps overlap, or are adjacent
			n = min(l.n-i, (gatherBuffer/g.width-span)/max(l.src, 1)+1)
			part := slices.Clone(loops)
			part[widest].n = n
			all := span + (n-1)*l.src
			err = g.piece(into, at, 1, all, all, part)
		default:
			n = min(l.n-i, gatherBuffer/g.width/span)
			part := slices.Clone(loops)
			part[widest] = loop{n, span, l.dst}
			err = g.piece(into, at, n, l.src, span, part)
		}
		if err != nil {
			return err
		}
		i += n
	}
	return nil
}

// piece fills dst with the elements of loops. It first reads n rows of the storage into a buffer.
// Each row has as many elements as length, and the rows start as many elements apart as step.
func (g gather) piece(dst []byte, base, n, step, length int64, loops []loop) error {
	row := length * g.width
	block := mem.NewBlock(n * row)
	defer block.Free()
	if all := int64(g.storage.Len()); n > 1 && step > all-(base+(n-1)*step) { // the storage ends within the last step
		if err := g.load(block.Bytes[:(n-1)*row], base, n-1, step, length); err != nil {
			return err
		}
		if err := g.load(block.Bytes[(n-1)*row:], base+(n-1)*step, 1, length, length); err != nil {
			return err
		}
	} else if err := g.load(block.Bytes, base, n, step, length); err != nil {
		return err
	}
	g.scatter(dst, block.Bytes, loops)
	return nil
}

// load fills b with the rows that piece describes. All of the n steps must lie in the storage. The
// root package decides which rows it reads in one call.
func (g gather) load(b []byte, base, n, step, length int64) error {
	t, err := g.storage.Slice(safetensors.Span(int(base), int(base+n*step)))
	if err == nil && length < step {
		t, err = t.Reshape(int(n), int(step))
		if err == nil {
			t, err = t.Slice(safetensors.All(), safetensors.Span(0, int(length)))
		}
	}
	if err != nil {
		return err
	}
	if n, err := t.ReadAt(b, 0); n < len(b) {
		return err
	}
	return nil
}

// scatter copies the elements of loops in src to their places in dst.
func (g gather) scatter(dst, src []byte, loops []loop) {
	run, inner := g.width, len(loops) // loops[inner:] fill run adjacent bytes of dst
	for inner > 0 && loops[inner-1].dst == run {
		inner--
		run *= loops[inner].n
	}
	if inner > 0 {
		for i := range loops[0].n {
			g.scatter(dst[i*loops[0].dst:], src[i*loops[0].src*g.width:], loops[1:])
		}
		return
	}
	gathered := make([]stride.Loop, len(loops))
	for i, l := range loops {
		gathered[i] = stride.Loop{N: l.n, Stride: l.src * g.width}
	}
	stride.Gather(dst[:run], src, g.width, gathered, 0)
}
