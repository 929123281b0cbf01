package quant

import (
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A leftOut records the tensors that are left out of a checkpoint, if config.skip is set. Otherwise
// each such tensor is an error.
type leftOut struct {
	c      *config
	why    map[string]error // reasons, by the name of a tensor, or of a module with a marker of ComfyUI
	owners map[*module]bool // modules that are left out because of a tensor next to them
	none   bool             // whether nothing is left out
}

func newLeftOut(c *config) *leftOut {
	return &leftOut{c: c, why: map[string]error{}, owners: map[*module]bool{}, none: true}
}

// out calls f. If f panics with a problem, out records that the tensor called name is left out; if
// config.skip is nil, it does not recover. A failure to read always panics.
func (l *leftOut) out(name string, f func()) {
	if l.c.skip == nil {
		f()
		return
	}
	why, err := attempt(f)
	if err != nil {
		panic(problem{err})
	}
	if why != nil {
		l.why[name], l.none = why, false
	}
}

// module leaves out the module owner because of the tensor called name next to it, which is also
// left out. f must panic with a problem about that tensor, which becomes the reason for both.
func (l *leftOut) module(owner *module, name string, f func()) {
	l.out(name, f)
	if !l.owners[owner] {
		l.owners[owner] = true
		l.c.skip(owner.result(), l.why[name])
	}
}

// markers returns the tensors without those of modules whose markers cannot be used. A bias stays.
func (l *leftOut) markers(tensors map[string]safetensors.Tensor, names []string) (map[string]safetensors.Tensor, error) {
	strange := l.c.strange
	if len(strange) == 0 {
		return tensors, nil
	}
	if l.c.skip == nil {
		return nil, strange[slices.Min(slices.Collect(maps.Keys(strange)))]
	}
	l.none = false
	tensors = maps.Clone(tensors)
	for _, name := range names {
		module := name[:max(strings.LastIndexByte(name, '.'), 0)]
		if why := strange[module]; why != nil && !isBias(name, tensors[name]) {
			l.c.skip(name, why)
			delete(tensors, name)
		}
	}
	return tensors, nil
}

// rest removes tensors from the map rest: those that are left out, and those in the same module or
// below it. A bias next to or below a tensor that is left out stays.
func (l *leftOut) rest(rest map[string]safetensors.Tensor, names []string) {
	if len(l.why) == 0 {
		return
	}
	beside := map[string]error{}
	for _, name := range slices.Sorted(maps.Keys(l.why)) {
		if dot := strings.LastIndexByte(name, '.'); dot > 0 && beside[name[:dot]] == nil {
			beside[name[:dot]] = l.why[name]
		}
	}
	for _, name := range names {
		t, ok := rest[name]
		if why := l.belongs(name, beside); ok && why != nil && (l.why[name] != nil || !isBias(name, t)) {
			l.c.skip(name, why)
			delete(rest, name)
		}
	}
}

// belongs returns the reason why a tensor is left out, or nil if it is not. beside maps modules to
// the reasons of tensors directly in them. belongs looks only at the last few components of the
// name, because a hostile name may have many.
func (l *leftOut) belongs(name string, beside map[string]error) error {
	if why := l.why[name]; why != nil {
		return why
	}
	if dot := strings.LastIndexByte(name, '.'); dot > 0 && beside[name[:dot]] != nil {
		return beside[name[:dot]]
	}
	end := len(name)
	for range 6 {
		if end = strings.LastIndexAny(name[:end], "._"); end < 0 {
			return nil
		}
		if why := l.why[name[:end]]; why != nil {
			return why
		}
	}
	return nil
}
