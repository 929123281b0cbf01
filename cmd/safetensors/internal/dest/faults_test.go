package dest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A faulty folder fails at one operation: without an effect, or, if late is true, after the operation has taken effect, as when
// only the answer of a store is lost.
type faulty struct {
	folder
	at, seen int
	late     bool
	failed   string // the operation that has failed
}

func (f *faulty) do(op, name string, operation func() error) error {
	f.seen++
	if f.seen != f.at {
		return operation()
	}
	f.failed = op + " " + name
	if f.late {
		operation()
	}
	return errBroken
}

func (f *faulty) Files(dir string, fresh bool) (files map[string]Stored, err error) {
	err = f.do("files", dir, func() (err error) { files, err = f.folder.Files(dir, fresh); return err })
	return files, err
}

func (f *faulty) Read(name string, n int64) (data []byte, err error) {
	err = f.do("read", name, func() (err error) { data, err = f.folder.Read(name, n); return err })
	return data, err
}

func (f *faulty) Open() (file *safetensors.File, err error) {
	err = f.do("open", "", func() (err error) { file, err = f.folder.Open(); return err })
	if err != nil && file != nil {
		file.Close() // Windows does not remove an open file
	}
	return file, err
}

func (f *faulty) Put(name string, data []byte) error {
	return f.do("put", name, func() error { return f.folder.Put(name, data) })
}

func (f *faulty) Remove(name string) error {
	return f.do("remove", name, func() error { return f.folder.Remove(name) })
}

func (f *faulty) WriteShard(name string, s Shard, metadata map[string]string, last func() error) error {
	return f.do("write", name, func() error { return f.folder.WriteShard(name, s, metadata, last) })
}

// contents returns the names and the last bytes of the tensors that a reader of a folder finds.
func contents(t *testing.T, to folder) string {
	t.Helper()
	f, err := to.Open()
	if err != nil {
		return "none"
	}
	defer f.Close()
	var all []string
	for name, x := range f.Tensors() {
		data, err := safetensors.Append([]byte(nil), x)
		require.NoError(t, err)
		all = append(all, fmt.Sprintf("%s%d", name, data[0]))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// copiesOf returns a Set that copies the files of a folder, as cp does, with the Record v1.
func copiesOf(t *testing.T, from folder) *Set {
	t.Helper()
	s := &Set{Shards: make(map[string]Shard), Record: []byte("v1")}
	for name := range must(from.Files("", false)) {
		data := must(from.Read(name, MostSmall))
		if safetensorsFiles.IsIndex(name) {
			s.Index, s.Text = name, data
			continue
		}
		s.Shards[name] = Shard{Size: int64(len(data)), CopyTo: func(w io.Writer) error { _, err := w.Write(data); return err }}
	}
	return s
}

// TestEveryOperation: if any operation of a Set fails, the error says so, and a reader finds the old checkpoint or the new one.
// A second Set then writes the new one, and leaves no other file. A failed Remove is tried again, and needs no error.
func TestEveryOperation(t *testing.T) {
	two := []string{"a", "b"}
	split := func(names ...string) func(*testing.T) *Set {
		return func(*testing.T) *Set {
			s := new(Set)
			s.Shards, s.Index = Split(checkpoint(names...), 16, "model", "")
			return s
		}
	}
	copies := func(names ...string) func(*testing.T) *Set {
		return func(t *testing.T) *Set {
			from := folder{name: t.TempDir(), maxBytes: 16}
			require.NoError(t, from.Write(checkpoint(names...), nil, nil))
			return copiesOf(t, from)
		}
	}
	for name, c := range map[string]struct {
		old   []string // names of the tensors of the old checkpoint
		set   func(*testing.T) *Set
		want  string
		files int
	}{
		"new shards":        {nil, split("x", "y", "z"), "x0 y1 z2", 3},
		"new file":          {nil, split("x", "y"), "x0 y1", 1},
		"shards for shards": {[]string{"a", "b", "c"}, split("x", "y", "z"), "x0 y1 z2", 3},
		"shards for a file": {two, split("x", "y", "z"), "x0 y1 z2", 3},
		"a file for shards": {[]string{"a", "b", "c"}, split("x", "y"), "x0 y1", 1},
		"a file for a file": {two, split("x", "y"), "x0 y1", 1},
		"copies":            {nil, copies("x", "y", "z"), "x0 y1 z2", 3},
		"copies for shards": {[]string{"a", "b", "c"}, copies("x", "y", "z"), "x0 y1 z2", 3},
		"copies for a file": {two, copies("x", "y", "z"), "x0 y1 z2", 3},
		"a copy for shards": {[]string{"a", "b", "c"}, copies("x", "y"), "x0 y1", 1},
		"a copy for one":    {two, copies("x", "y"), "x0 y1", 1},
	} {
		for _, late := range []bool{false, true} {
			for at := 1; ; at++ {
				to := folder{name: t.TempDir(), maxBytes: 16}
				if c.old != nil {
					require.NoError(t, to.Write(checkpoint(c.old...), nil, nil))
				}
				before := contents(t, to)
				set := func() *Set {
					s := c.set(t)
					s.Force, s.AtOnce = c.old != nil, 1
					return s
				}
				f := &faulty{folder: to, at: at, late: late}
				err := set().Write(f)
				if f.failed == "" {
					require.NoError(t, err, name)
					require.Greater(t, at, 3, name)
					break
				}
				where := fmt.Sprintf("%s, late %v: %s", name, late, f.failed)
				now := contents(t, to)
				if err == nil {
					require.True(t, strings.HasPrefix(f.failed, "remove ") || late, where)
					require.Equal(t, c.want, now, where)
				} else {
					require.ErrorIs(t, err, errBroken, where)
					require.Contains(t, []string{before, c.want}, now, where)
					again := set()
					again.Force = again.Force || now == c.want
					require.NoError(t, again.Write(to), where)
				}
				require.Equal(t, c.want, contents(t, to), where)
				require.Len(t, must(to.Files("", false)), c.files, "%s: %v", where, slices.Collect(maps.Keys(must(to.Files("", false)))))
			}
		}
	}
}
