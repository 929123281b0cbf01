package safetensors

import (
	"cmp"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// mostInMemory limits the bytes of a source that are held in memory to transpose them, unless one
// index of a dimension has more.
const mostInMemory = 1 << 30

// A transposedStream produces the bytes of a tensor that is not in memory, and whose elements are
// not in the order of the source. It reads one part after another into memory, in the order of
// the source, and gathers the elements there.
//
// A part consists of some steps of one loop of the gather, with all inner loops.
type transposedStream struct {
	*storedStream
	loop  int   // index of that loop in the gather
	most  int64 // number of steps in each part, except for the last one
	inner int64 // number of runs in a step
	step  int64 // size of a step in bytes, after conversion

	memory *resultPool
	cached bool // whether parts stay in memory while there is room, until a cache frees them
	mu     sync.Mutex
	parts  map[int64]*transposedPart // parts in memory, by the index of their first step
}

// A transposedPart is one part. Its result is the bytes of the part in the order of the source.
type transposedPart struct {
	*computedStream
	first, steps int64 // index of the first step of the part, and the number of its steps
	readers      int   // number of readers that have entered the part and not left it
}

func newTransposedStream(s *storedStream, all *computations, cached *cache) *transposedStream {
	t := &transposedStream{storedStream: s, memory: all.pool(), cached: cached != nil, parts: make(map[int64]*transposedPart)}
	if t.cached {
		*cached = append(*cached, t.drop)
	}
	loops := s.from.loops
	size := s.from.size() // in the loop below: size in bytes of one step of loops[i], before conversion
	for i, l := range loops {
		size /= l.N
		wanted := int64(mostInMemory)
		if !slices.ContainsFunc(loops[i+1:], func(inner stride.Loop) bool { return inner.Stride > l.Stride }) {
			wanted = mem.BlockSize // no loop within this one has a longer stride, so that small parts suffice
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

// workers returns a small number, because the reads of a part run concurrently anyway.
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

// enter returns the part that contains a step, and counts one more reader of it. The reader must
// call leave.
func (t *transposedStream) enter(step int64) *transposedPart {
	within := step % t.from.loops[t.loop].N
	first := step - within%t.most
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.parts[first]
	if p == nil {
		if t.cached {
			t.makeRoom(mostInMemory)
		}
		p = t.part(first, min(t.most, t.from.loops[t.loop].N-within+within%t.most))
		t.parts[first] = p
	}
	p.readers++
	return p
}

// drop frees all parts that nobody reads.
func (t *transposedStream) drop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.makeRoom(0)
}

// makeRoom frees parts that have no readers. It stops when the remaining parts take fewer bytes
// than the limit, most.
func (t *transposedStream) makeRoom(most int64) {
	for first, p := range t.parts {
		if int64(len(t.parts))*t.most*t.step < most {
			return
		}
		if p.readers == 0 {
			p.computation.markRead(p.unread.Load())
			delete(t.parts, first)
		}
	}
}

// leave records that a reader is done with a part, and forgets the part if all its bytes were
// read.
func (t *transposedStream) leave(p *transposedPart) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.readers--; p.unread.Load() == 0 {
		delete(t.parts, p.first)
	}
}

// part returns the part that consists of these steps. The first read of the part reads the
// source.
func (t *transposedStream) part(first, steps int64) *transposedPart {
	loops := slices.Clone(t.from.loops[t.loop:])
	loops[0].N = steps
	order := make([]int, len(loops)) // loops in the order of the source: the one with the longest stride is the outermost
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
		loops[i].Stride = size // in memory, where the part is stored without gaps
		size *= loops[i].N
	}
	inMemory := gather{run: t.from.run}
	for _, l := range loops {
		inMemory.add(l)
	}
	inMemory.join()

	from := &storedStream{src: t.src, off: t.off + t.from.runAt(first*t.inner), bytes: size, held: t.held, limit: t.limit}
	if !stored.contiguous() {
		from.from, from.transposed = &stored, !stored.inOrder()
	}
	fill := func(b []byte) error { return readAll(from, b, true) } // reads the part in the order of the source
	c := &computation{computed: &computed{size, fill}, memory: t.memory}
	same := storedStream{from: &inMemory, transposed: !inMemory.inOrder(), dtypes: t.dtypes, bytes: steps * t.step, held: true}
	c.unread.Store(same.bytes)
	return &transposedPart{&computedStream{c, t.cached, same}, first, steps, 0}
}
