package safetensors

import "math"

// Watch returns the same tensors, and calls read, concurrently too, for every n bytes that
// an operation reads of them: progress. An error of read ends the operation and comes out
// of it: cancellation. The bytes are those of the tensors in the map, before any later
// Convert. Views are not counted.
func Watch(tensors map[string]Tensor, read func(n int) error) map[string]Tensor {
	type key struct {
		at   int
		next *watch
	}
	made := make(map[key]*watch) // shared, so that adjacent parts of one tensor are still joined
	var watched func(t Tensor) Tensor
	watched = func(t Tensor) Tensor {
		if t.concat != nil {
			t, _ = t.concat.each(t.concat.dim, func(p Tensor) (Tensor, error) { return watched(p), nil })
			return t
		}
		k := key{max(0, len(t.dtypes)-1), t.watch}
		if made[k] == nil {
			made[k] = &watch{read, k.at, k.next}
		}
		t.watch = made[k]
		return t
	}
	all := make(map[string]Tensor, len(tensors))
	for name, t := range tensors {
		all[name] = watched(t)
	}
	return all
}

// A watch is one func that is told what is read of a tensor.
type watch struct {
	read func(n int) error
	at   int    // index in Tensor.dtypes of the dtype whose bytes count
	next *watch // of the tensor before it was watched
}

// tell tells those who watch of n bytes from position pos on that came out of s.
func (s *storedStream) tell(pos, n int64) error {
	for w := s.watch; w != nil; w = w.next {
		n := n
		if s.dtypes != nil {
			from, to := int64(s.dtypes[w.at].Bits()), int64(s.dtypes[len(s.dtypes)-1].Bits())
			before, _ := scaled(pos, from, to)
			end, _ := scaled(pos+n, from, to)
			n = end - before // summed up over all positions, exactly the bytes of the tensor
		}
		for n > 0 {
			part := min(n, math.MaxInt) // where an int has 32 bits
			if err := w.read(int(part)); err != nil {
				return bare(err)
			}
			n -= part
		}
	}
	return nil
}
