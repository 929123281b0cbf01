package safetensors

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// Transpose returns t with its dimensions in another order, lazily: dimension i of the
// result is dimension dims[i] of t; none given reverses them. From a reader, each byte
// is read once, and up to 1 GiB is held: one matrix where leading dimensions stay in
// front. ReadAt in small windows is slow.
//
// In dtypes below a byte, the last dimension must stay last, with rows of whole bytes;
// if not, the error wraps [errors.ErrUnsupported].
func (t Tensor) Transpose(dims ...int) (Tensor, error) {
	p, err := t.transpose(dims)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("transposing %v: %w", t, err))
	}
	return p, nil
}

func (t Tensor) transpose(dims []int) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, err
	}
	rank := len(t.shape)
	all := make([]int, rank)
	for i := range all {
		all[i] = i
	}
	if len(dims) == 0 {
		dims = slices.Clone(all)
		slices.Reverse(dims)
	}
	sorted := slices.Clone(dims) // slices.Sorted takes several times the memory
	slices.Sort(sorted)
	if !slices.Equal(sorted, all) {
		return Tensor{}, fmt.Errorf("%s is no permutation of its %d dimensions", formatShape(dims), rank)
	}
	if t.concat != nil {
		return t.concat.each(slices.Index(dims, t.concat.dim), func(p Tensor) (Tensor, error) { return p.transpose(dims) })
	}
	shape, strides, whole := make([]int, rank), make([]int64, rank), t.layout()
	for i, dim := range dims {
		shape[i], strides[i] = t.shape[dim], whole[dim]
	}
	p, err := t.selecting(0, shape, strides)
	if err != nil {
		return Tensor{}, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return p, nil
}

// mostHeld is how many bytes of a source are held to transpose them, unless one
// index of a dimension has more.
const mostHeld = 1 << 30

// A transposedStream produces the bytes of a tensor that is not in memory and whose
// elements are not in the order of the source. It reads part after part in the
// order of the source into memory, and gathers the elements there.
//
// A part is some steps of one loop of the gather, with all loops inside of it.
type transposedStream struct {
	*storedStream
	loop  int   // of the gather
	most  int64 // steps of a part
	inner int64 // runs of a step
	step  int64 // bytes of a step, as they come out

	memory *resultPool
	kept   bool // parts are, while there is room, until a throughStream drops them
	mu     sync.Mutex
	parts  map[int64]*transposedPart // in memory, by the number of their first step
}

// A transposedPart is one part, computed: in memory in the order of the source.
type transposedPart struct {
	*computedStream
	first, steps int64
	readers      int
}

func newTransposedStream(s *storedStream, all *computations) *transposedStream {
	t := &transposedStream{storedStream: s, memory: all.pool(), kept: all.kept != nil, parts: make(map[int64]*transposedPart)}
	if t.kept {
		*all.kept = append(*all.kept, t.drop)
	}
	loops := s.from.loops
	size := s.from.size() // of a step, in the source
	for i, l := range loops {
		size /= l.N
		wanted := int64(mostHeld)
		if !slices.ContainsFunc(loops[i+1:], func(inner stride.Loop) bool { return inner.Stride > l.Stride }) {
			wanted = mem.BlockSize // the loop stays in front
		}
		if t.loop, t.most = i, min(max(1, wanted/size), l.N); size <= wanted {
			break
		}
	}
	t.inner, t.step = size/s.from.run, size
	if s.dtypes != nil {
		t.step, _ = scaled(size, int64(s.dtypes[len(s.dtypes)-1].Bits()), int64(s.dtypes[0].Bits()))
	}
	return t
}

// workers: the reads of a part run concurrently anyway.
func (t *transposedStream) workers() int { return parallel.CopyWorkers() }

func (t *transposedStream) block() int64 { return mem.BlockSize }

func (t *transposedStream) readAt(dst []byte, pos int64) error {
	begin := pos
	for len(dst) > 0 {
		p := t.enter(pos / t.step)
		at := pos - p.first*t.step
		n := min(int64(len(dst)), p.steps*t.step-at)
		err := p.readAt(dst[:n], at)
		t.leave(p)
		if err != nil {
			return err
		}
		dst, pos = dst[n:], pos+n
	}
	return t.tell(begin, pos-begin)
}

// enter returns the part that has a step, for one more reader.
func (t *transposedStream) enter(step int64) *transposedPart {
	within := step % t.from.loops[t.loop].N
	first := step - within%t.most
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.parts[first]
	if p == nil {
		if t.kept {
			t.makeRoom(mostHeld)
		}
		p = t.part(first, min(t.most, t.from.loops[t.loop].N-within+within%t.most))
		t.parts[first] = p
	}
	p.readers++
	return p
}

// drop drops all parts.
func (t *transposedStream) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.makeRoom(0)
}

// makeRoom drops parts that nobody reads while as many as fill most bytes are held.
func (t *transposedStream) makeRoom(most int64) {
	for first, p := range t.parts {
		if int64(len(t.parts))*t.most*t.step < most {
			return
		}
		if p.readers == 0 {
			p.computation.read(p.left.Load())
			delete(t.parts, first)
		}
	}
}

// leave notes that a reader is done with a part, which has no memory after the last byte.
func (t *transposedStream) leave(p *transposedPart) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.readers--; p.left.Load() == 0 {
		delete(t.parts, p.first)
	}
}

// part returns some steps as a part. The first read of it reads them from the source.
func (t *transposedStream) part(first, steps int64) *transposedPart {
	loops := slices.Clone(t.from.loops[t.loop:])
	loops[0].N = steps
	order := make([]int, len(loops)) // of the source: the loop of the longest stride is the outermost
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loops[b].Stride, loops[a].Stride) })

	stored := gather{run: t.from.run}
	for _, i := range order {
		stored.add(loops[i])
	}
	stored.join()
	size := t.from.run
	for _, i := range slices.Backward(order) {
		loops[i].Stride = size // in memory
		size *= loops[i].N
	}
	held := gather{run: t.from.run}
	for _, l := range loops {
		held.add(l)
	}
	held.join()

	from := &storedStream{src: t.src, off: t.off + t.from.runAt(first*t.inner), bytes: size, held: t.held, limit: t.limit}
	if !stored.contiguous() {
		from.from, from.transposed = &stored, !stored.inOrder()
	}
	fill := func(b []byte) error { return readAll(from, b, true) } // as it is at first
	c := &computation{computed: &computed{size, fill}, memory: t.memory}
	same := storedStream{from: &held, transposed: !held.inOrder(), dtypes: t.dtypes, bytes: steps * t.step, held: true}
	c.left.Store(same.bytes)
	return &transposedPart{&computedStream{c, t.kept, same}, first, steps, 0}
}
