package dest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A broken source ends after some bytes, and tells from where it was read.
type brokenSource struct {
	content string
	end     int // of what comes; -1 for all
	from    []int64
}

var errPulled = errors.New("broken")

func (b *brokenSource) shard(of string, sums bool) Shard {
	s := &Source{Content: of, CopyFrom: func(w io.Writer, off int64) error {
		b.from = append(b.from, off)
		if b.end >= 0 {
			_, err := io.WriteString(w, b.content[off:max(b.end, int(off))])
			return errors.Join(err, errPulled)
		}
		_, err := io.WriteString(w, b.content[off:])
		return err
	}}
	if sums {
		want := sha256.Sum256([]byte(b.content))
		s.NewHash = func() hash.Hash { return sha256.New() }
		s.Matches = func(sum []byte) bool { return bytes.Equal(sum, want[:]) }
	}
	return Shard{Size: int64(len(b.content)), CopyTo: func(w io.Writer) error { return s.CopyFrom(w, 0) }, Source: s}
}

// TestPartial: a copy goes on where an earlier one of the same content has ended, and starts anew if the content
// is another, or if the partial file is not what was written.
func TestPartial(t *testing.T) {
	const half = 2 << 20
	content := strings.Repeat("0123456789abcde\n", half/8)
	partialOf := func(t *testing.T, dir string) string {
		found, err := filepath.Glob(filepath.Join(dir, ".safetensors-part-*"))
		require.NoError(t, err)
		require.Len(t, found, 2, "the file and its note")
		return found[0]
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		of    string
		sums  bool
		from  []int64
	}{
		"the same":        {nil, "v1", false, []int64{half}},
		"with its sum":    {nil, "v1", true, []int64{half}},
		"another content": {nil, "v2", false, []int64{0}},
		"more than noted": {func(t *testing.T, dir string) {
			f, err := os.OpenFile(partialOf(t, dir), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			_, err = f.WriteString("more")
			require.NoError(t, errors.Join(err, f.Close()))
		}, "v1", false, []int64{half}},
		"other bytes": {func(t *testing.T, dir string) {
			f, err := os.OpenFile(partialOf(t, dir), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("x"), 7)
			require.NoError(t, errors.Join(err, f.Close()))
		}, "v1", false, []int64{0}},
		"shorter": {func(t *testing.T, dir string) { require.NoError(t, os.Truncate(partialOf(t, dir), 100)) }, "v1", true, []int64{0}},
		"no note": {func(t *testing.T, dir string) { require.NoError(t, os.Remove(partialOf(t, dir)+".note.tmp")) }, "v1", true, []int64{0}},
		"half a note": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(partialOf(t, dir)+".note.tmp", []byte(`{"Size":20`), 0o666))
		}, "v1", true, []int64{0}},
		"a wrong sum": {func(t *testing.T, dir string) { // and a note that agrees with it
			wrong := strings.Repeat("x", half)
			sum := sha256.Sum256([]byte(wrong))
			require.NoError(t, os.WriteFile(partialOf(t, dir), []byte(wrong), 0o666))
			p := partial{notes: partialOf(t, dir) + ".note.tmp", sum: sha256.New(), size: half}
			p.sum.Write([]byte(wrong))
			require.Equal(t, sum[:], p.sum.Sum(nil))
			require.NoError(t, p.note())
		}, "v1", true, []int64{half, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			b := &brokenSource{content: content, end: half}
			set := &Set{Shards: map[string]Shard{"model.safetensors": b.shard("v1", c.sums)}, Sums: true}
			require.ErrorIs(t, set.Write(folder{name: dir}), errPulled)
			require.NoFileExists(t, filepath.Join(dir, "model.safetensors"))
			partialOf(t, dir)
			if c.spoil != nil {
				c.spoil(t, dir)
			}
			b.end, b.from = -1, nil
			set = &Set{Shards: map[string]Shard{"model.safetensors": b.shard(c.of, c.sums)}, Sums: true}
			require.NoError(t, set.Write(folder{name: dir}))
			require.Equal(t, c.from, b.from)
			got, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
			require.NoError(t, err)
			require.True(t, string(got) == content)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 1, "no temporary file stays")
		})
	}
}

// TestPartialLink: a link under the name of a partial file is not followed.
func TestPartialLink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("mine"), 0o666))
	b := &brokenSource{content: "content", end: -1}
	shard := b.shard("v1", false)
	if err := os.Symlink(other, filepath.Join(dir, partialName("m.safetensors", shard))); err != nil {
		t.Skip(err)
	}
	require.NoError(t, folder{name: dir}.WriteShard("m.safetensors", shard, nil, nil))
	text, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "mine", string(text))
}

// TestFewBytes: a partial file of a few bytes does not stay.
func TestFewBytes(t *testing.T) {
	dir := t.TempDir()
	b := &brokenSource{content: strings.Repeat("x", 1000), end: 500}
	set := &Set{Shards: map[string]Shard{"model.safetensors": b.shard("v1", false)}, Sums: true}
	require.ErrorIs(t, set.Write(folder{name: dir}), errPulled)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// TestPartialErrors: a partial file that cannot be opened, and a source that has changed meanwhile, are errors, and
// nothing stays. Few bytes have no note, which would be written with each piece.
func TestPartialErrors(t *testing.T) {
	b := &brokenSource{content: "content", end: -1}
	shard := b.shard("v1", false)
	dir := t.TempDir()
	to := folder{name: dir}
	occupied := filepath.Join(dir, partialName("x", shard))
	require.NoError(t, os.MkdirAll(filepath.Join(occupied, "below"), 0o777))
	require.ErrorContains(t, to.WriteShard("x", shard, nil, nil), filepath.Base(occupied))
	require.NoFileExists(t, filepath.Join(dir, "x"))
	require.NoError(t, os.RemoveAll(occupied))

	require.ErrorIs(t, to.WriteShard("x", shard, nil, func() error { return errPulled }), errPulled)
	require.Empty(t, must(os.ReadDir(dir)))

	copyFrom := shard.Source.CopyFrom
	shard.Source.CopyFrom = func(w io.Writer, off int64) error {
		err := copyFrom(w, off)
		require.NoFileExists(t, occupied+".note.tmp")
		return err
	}
	asked := 0
	require.NoError(t, to.WriteShard("x", shard, nil, func() error { asked++; return nil }))
	require.Equal(t, 1, asked, "whether the source is unchanged")
	require.Equal(t, "content", string(must(os.ReadFile(filepath.Join(dir, "x")))))
}

// TestNotes: a partial file gets a note with each 16 MiB, and keeps the one that it has after an error if it has at least a MiB.
func TestNotes(t *testing.T) {
	for size, stays := range map[int]bool{leastPartial - 1: false, leastPartial: true, noteEvery - 1: true, noteEvery: true, 2*noteEvery + 5: true} {
		dir := t.TempDir()
		b := &brokenSource{content: strings.Repeat("0123456789abcde\n", noteEvery/4), end: size}
		shard := b.shard("v1", false)
		name := filepath.Join(dir, partialName("x", shard))
		noted := int64(0)
		shard.Source.CopyFrom = func(w io.Writer, off int64) error {
			for at := 0; at < size; {
				n := min(1<<20, size-at)
				if _, err := io.WriteString(w, b.content[at:at+n]); err != nil {
					return err
				}
				at += n
			}
			noted = readNote(name + ".note.tmp").Size
			return errPulled
		}
		require.ErrorIs(t, folder{name: dir}.WriteShard("x", shard, nil, nil), errPulled)
		require.EqualValues(t, size/noteEvery*noteEvery, noted, "%d", size)
		if stays {
			require.EqualValues(t, size, readNote(name+".note.tmp").Size)
			require.EqualValues(t, size, must(os.Stat(name)).Size())
		} else {
			require.Empty(t, must(os.ReadDir(dir)))
		}
	}
}
