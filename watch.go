package safetensors

import "maps"

// Watch returns the same tensors. Each time an operation has read n more bytes of them, it calls
// read(n), possibly concurrently, so that read can show progress. If read returns an error, the
// operation stops and returns that error, so that read can cancel it. Bytes are those of the tensors
// in the map: converted bytes if you convert before Watch, stored bytes if you convert after it. Views are not counted. If read is nil, nothing is counted.
func Watch(tensors map[string]Tensor, read func(n int) error) map[string]Tensor {
	if read == nil {
		return maps.Clone(tensors)
	}
	type key struct {
		at   int
		next *watch
	}
	made := make(map[key]*watch) // watches are shared, so that Concat still joins adjacent parts of one tensor
	var watched func(t Tensor) Tensor
	watched = func(t Tensor) Tensor {
		if c, ok := t.origin.(*concat); ok {
			t, _ = c.each(c.dim, func(p Tensor) (Tensor, error) { return watched(p), nil })
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
