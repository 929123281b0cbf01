package dcp

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A watched reader records an error of reading the file, so that it is not reported as an error in
// the bytes of the file.
type watched struct {
	*file
	err atomic.Pointer[error]
}

func (w *watched) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.file.ReadAt(p, off)
	if err != nil && err != io.EOF {
		w.err.Store(&err)
	}
	return n, err
}

// read reads the file of the i-th rank. It keeps only the pieces, which read the file on demand.
func (j *rankJob) read(i int, file *file) error {
	w := &watched{file: file}
	opened, err := rankfile.Open(w, file.info.Size(), j.key)
	if err != nil {
		return err
	}
	if i == 0 {
		j.inner = opened.Inner
	}
	j.places = make(map[*pickle.Object]place)
	for _, e := range opened.Entries {
		if err := checkName(e.Name); err != nil {
			return broken("", "%v", err)
		}
		if e.Name == reserved {
			e.Why = prefix.Unsupported{Err: errReserved}
		}
		s, err := j.shareOf(e, opened)
		switch why := (prefix.Unsupported{}); {
		case errors.As(err, &why):
			s = &share{kind: "tensor that safetensors cannot hold", place: place{rank: -1}}
		case w.err.Load() != nil:
			return fmt.Errorf("tensor %s: %w", quote(e.Name), *w.err.Load())
		case err != nil:
			return broken(e.Name, "%v", prefix.Strip(err))
		}
		if err := j.add(i, e.Name, s, err); err != nil {
			return err
		}
	}
	j.addMetadata(i, opened)
	return nil
}

const reserved = "__metadata__" // the format of safetensors reserves this name

var errReserved = errors.New("this name is reserved for the metadata of safetensors")

// addMetadata adds the entries of a file that are not tensors. An entry that differs between files
// is skipped.
func (j *rankJob) addMetadata(i int, opened *rankfile.File) {
	maps.Copy(j.skipped, opened.Skipped)
	if i == 0 {
		j.metadata = opened.Metadata
	}
	differ := func(key, value string) bool {
		v, ok := opened.Metadata[key]
		return !ok || v != value
	}
	for key, value := range j.metadata {
		if differ(key, value) {
			j.skipped[key] = errors.New("it differs between the ranks")
			delete(j.metadata, key)
		}
	}
}

// add adds a file's part of a tensor. why is the reason why safetensors cannot represent the
// tensor, or nil.
func (j *rankJob) add(i int, name string, s *share, why error) error {
	if err := j.own(i, s); err != nil {
		return broken(name, "%v", err)
	}
	if s.kind == "ShardedTensor" && isFlat(name) {
		return broken(name, "the flat parameters of FSDP: the file does not say which tensors they are; save SHARDED_STATE_DICT or FULL_STATE_DICT")
	}
	t := j.tensors[name]
	if t == nil {
		t = &divided{name: name, share: *s, why: why}
		t.share.pieces = nil
		j.tensors[name] = t
		j.pieces -= 2 + len(s.listed)*(1+len(s.size)/4)
	} else if err := t.agrees(s); err != nil {
		return broken(name, "%v; %v is the first that has it", err, j.ranks[t.holdings[0].rank])
	}
	for _, p := range s.pieces {
		j.pieces -= 1 + len(s.size)/4
		if j.bytes -= p.tensor.Size(); j.bytes < 0 {
			return broken(name, "%v is too large for these files: their tensors repeat the same data too often", p.tensor)
		}
	}
	if j.pieces--; j.pieces < 0 {
		return broken(name, "the tensors of the ranks have more than %d parts", maxPieces)
	}
	t.holdings = append(t.holdings, holding{i, s.place.mesh, s.pieces})
	return nil
}

// isFlat reports whether a name is that of a tensor into which FSDP has flattened all parameters of
// a module.
func isFlat(name string) bool {
	return strings.Contains(name[strings.LastIndexByte(name, '.')+1:], "flat_param")
}

// own records the number of the rank that saved a file, and the number of ranks, as a tensor in the
// file gives them.
func (j *rankJob) own(i int, s *share) error {
	r := &j.ranks[i]
	switch n := s.place.rank; {
	case n >= 0 && r.own >= 0 && n != r.own:
		return fmt.Errorf("it is of rank %d, tensors before it are of rank %d", n, r.own)
	case n >= 0:
		r.own = n
	}
	switch {
	case s.world > 0 && j.world > 0 && s.world != j.world:
		return fmt.Errorf("it is of a job of %d ranks, another tensor or the name of the file of one of %d", s.world, j.world)
	case s.world > 0:
		j.world = s.world
	}
	return nil
}

// agrees returns an error if s, the share of a tensor of the same name in another file, describes a
// different tensor.
func (d *divided) agrees(s *share) error {
	switch {
	case d.kind != s.kind:
		return fmt.Errorf("it is a %s here, and a %s elsewhere: they differ", s.kind, d.kind)
	case d.dtype != s.dtype:
		return fmt.Errorf("its dtype differs: %v here, %v elsewhere", s.dtype, d.dtype)
	case !slices.Equal(d.size, s.size):
		return fmt.Errorf("its shape differs: %s here, %s elsewhere", shapetext.Of(s.size), shapetext.Of(d.size))
	case s.layout != d.layout && s.layout != "" && d.layout != "":
		return fmt.Errorf("its placements differ: %s here, %s elsewhere", s.layout, d.layout)
	case !slices.EqualFunc(d.listed, s.listed, box.equal):
		return errors.New("the lists of its shards differ between ranks")
	}
	d.layout = cmp.Or(d.layout, s.layout)
	return nil
}
