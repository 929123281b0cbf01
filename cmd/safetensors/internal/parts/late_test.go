package parts

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/stretchr/testify/require"
)

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// jobs returns a func that makes jobs with a folder in common. Those of one tag copy the same
// numbers; the headers of all are the same.
func jobs(t *testing.T, shards int) func(tag byte, part Part) *Job {
	to, err := dest.Parse(t.Context(), t.TempDir(), io.Discard, 8)
	require.NoError(t, err)
	return func(tag byte, part Part) *Job {
		tensors := make(map[string]safetensors.Tensor)
		for i := range shards {
			x, err := safetensors.NewTensor(safetensors.U8, []int{8}, []byte{tag, byte(i), 2, 3, 4, 5, 6, 7})
			require.NoError(t, err)
			tensors[string(rune('a'+i))] = x
		}
		job := &Job{
			To: to.(dest.Shared), Name: "dst", Part: part, AtOnce: 1, Force: true,
			Plan:   Plan{Source: []storage.Pin{{Name: "x", Size: 8, Tag: string(rune(tag))}}},
			Shards: safetensors.Split(tensors, 8), Unchanged: func() error { return nil },
			CopyFiles: func() error { return nil }, Free: func() error { return nil }, Begin: func(int64) {},
		}
		if shards > 1 {
			job.Index = format.IndexFile
		}
		return job
	}
}

// TestPlanBack has a part wait while another job replaces its plan, leaves shards of the same
// headers, and is replaced in turn: the part takes none of these for one of its own job.
func TestPlanBack(t *testing.T) {
	for _, third := range []bool{true, false} {
		job := jobs(t, 3)
		do := func(tag byte, k, n int) {
			require.NoError(t, errorOf(job(tag, Part{k, n}).Do()))
		}
		if third { // all shards are there, then
			do('1', 3, 3)
		}
		late := job('1', Part{1, 3})
		waiting := true
		late.Unchanged = func() error {
			if waiting {
				waiting = false
				do('2', 1, 3)
				do('2', 2, 3)
				do('1', 4, 4) // has no shard
			}
			return nil
		}
		_, err := late.Do()
		require.ErrorIs(t, err, errReplaced)
		require.NotErrorAs(t, err, new(Refusal))
		for k := 1; k <= 3; k++ {
			require.ErrorIs(t, errorOf(late.To.Read(format.IndexFile, 1)), fs.ErrNotExist)
			do('1', k, 3)
		}
		require.NoError(t, errorOf(late.To.Read(format.IndexFile, 1)))
		requireCopies(t, late.To, '1')
	}
}

// requireCopies checks that the three shards of a folder are those of one tag.
func requireCopies(t *testing.T, to dest.Shared, tag byte) {
	for i := range 3 {
		data, err := to.Read(fmt.Sprintf("model-%05d-of-00003.safetensors", i+1), 1<<20)
		require.NoError(t, err)
		require.Equal(t, []byte{tag, byte(i), 2, 3, 4, 5, 6, 7}, data[len(data)-8:])
	}
}

// A meddled destination calls a func before each reading, whose error is that of the reading.
type meddled struct {
	dest.Shared
	before func(name string) error
}

func (m meddled) Read(name string, n int64) ([]byte, error) {
	if err := m.before(name); err != nil {
		return nil, err
	}
	return m.Shared.Read(name, n)
}

// TestFailingCheck: what cannot be read of another part's shard is an error, and not a part
// that is missing.
func TestFailingCheck(t *testing.T) {
	job := jobs(t, 2)
	require.NoError(t, errorOf(job('1', Part{1, 2}).Do()))
	failed := errors.New("failed")
	j := job('1', Part{2, 2})
	j.To = meddled{j.To, func(name string) error {
		if name == "model-00001-of-00002.safetensors" {
			return failed
		}
		return nil
	}}
	require.ErrorIs(t, errorOf(j.Do()), failed)
}

// TestPlanReplacedMeanwhile has a job replace a plan that a third one has replaced just
// before, and written a shard: that is none of the job.
func TestPlanReplacedMeanwhile(t *testing.T) {
	job := jobs(t, 3)
	require.NoError(t, errorOf(job('1', Part{1, 3}).Do()))
	j := job('2', Part{1, 1})
	plans := 0
	j.To = meddled{j.To, func(name string) error {
		if name != PlanName {
			return nil
		}
		if plans++; plans == 2 {
			return errorOf(job('3', Part{1, 3}).Do())
		}
		return nil
	}}
	require.NoError(t, errorOf(j.Do()))
	requireCopies(t, j.To, '2')
}

// TestForeignPlan: what is no plan of this command is replaced with --force only.
func TestForeignPlan(t *testing.T) {
	job := jobs(t, 3)
	for _, text := range []string{"{}", "no JSON"} {
		j := job('1', Part{1, 1})
		j.To.Remove(PlanName)
		require.NoError(t, j.To.Create(PlanName, []byte(text)))
		j.Force = false
		require.EqualError(t, errorOf(j.Do()), "dst holds the plan of another job: "+PlanName+" is not a plan of this command; --force replaces it")
	}
	j := job('1', Part{1, 1})
	require.NoError(t, errorOf(j.Do()))
	requireCopies(t, j.To, '1')
}

// TestDifferences: five are listed, of more the number.
func TestDifferences(t *testing.T) {
	var p Plan
	require.NoError(t, p.differences(new(Plan)))
	require.EqualError(t, p.differences(&Plan{Form: 2}), "it has the form 2, not 0")
	want := ""
	for n := range 8 {
		p.Source = append(p.Source, storage.Pin{Name: fmt.Sprint("x", n)})
		more := ""
		if n < 5 {
			want += fmt.Sprintf("; its SRC lacks x%d", n)
		} else {
			more = fmt.Sprintf("; and %d more", n-4)
		}
		require.EqualError(t, p.differences(new(Plan)), want[2:]+more)
	}
	p.Flags = map[string][]string{"max-shard-size": {"5"}, "only": {"a", "b"}}
	require.EqualError(t, p.differences(&Plan{Flags: map[string][]string{"max-shard-size": {"6"}, "with-files": {"true"}}}),
		"it was made with --max-shard-size 6, no --only and --with-files, and this command has --max-shard-size 5, --only a b and no --with-files",
		"and not that files of SRC are others, because the flags decide which are read")
}

// TestNotBegun: a checkpoint that could not be opened is not begun.
func TestNotBegun(t *testing.T) {
	many, text := jobs(t, 10_001)('1', Part{1, 1}), jobs(t, 1)('1', Part{1, 1})
	text.Metadata = map[string]string{"key": "\xff"}
	for want, j := range map[string]*Job{"more than 10000 shards": many, "not valid UTF-8": text} {
		require.ErrorContains(t, errorOf(j.Do()), want)
		files, err := j.To.Files("", false)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

// TestFilesLast: the files next to the only shard are written when that is complete, those next to
// several before the index, and never for a source that has changed.
func TestFilesLast(t *testing.T) {
	j := jobs(t, 1)('1', Part{1, 1})
	changed := errors.New("changed")
	copied := false
	j.CopyFiles = func() error { copied = true; return nil }
	j.Unchanged = func() error { return changed }
	require.ErrorIs(t, errorOf(j.Do()), changed)
	require.False(t, copied)
	j.Unchanged = func() error { return nil }
	j.CopyFiles = func() error { return fs.ErrPermission }
	j.Plan.Shards = nil
	require.ErrorIs(t, errorOf(j.Do()), fs.ErrPermission)
	require.ErrorIs(t, errorOf(j.To.Read(format.ModelFile, 1)), fs.ErrNotExist)
	for _, shards := range []int{1, 2} {
		j = jobs(t, shards)('1', Part{1, 1})
		j.Free = func() error { return changed }
		copied = false
		j.CopyFiles = func() error { copied = true; return nil }
		require.ErrorIs(t, errorOf(j.Do()), changed)
		require.Empty(t, must(j.To.Files("", true)), "there is no plan, either")
		j.Free = func() error { // the file appears after the plan was stored
			if _, err := j.To.Read(PlanName, 1); err == nil {
				return changed
			}
			return nil
		}
		j.Plan.Shards = nil
		require.ErrorIs(t, errorOf(j.Do()), changed)
		require.False(t, copied)
		require.NotContains(t, must(j.To.Files("", true)), cmp.Or(j.Index, format.ModelFile))
	}
	j = jobs(t, 2)('1', Part{1, 1}) // and then finds an index of somebody else
	j.CopyFiles = func() error { return j.To.Put(format.IndexFile, []byte("{}")) }
	require.ErrorContains(t, errorOf(j.Do()), "holds a checkpoint: "+format.IndexFile)
	j.Plan.Shards = nil // of another run
	require.ErrorContains(t, errorOf(j.Do()), "holds a checkpoint: "+format.IndexFile)
}

// TestNamesOfBytes: names of files need not be UTF-8, which a plan in JSON is.
func TestNamesOfBytes(t *testing.T) {
	job := jobs(t, 2)
	for range 2 {
		j := job('1', Part{1, 1})
		j.Force = false
		j.Plan.Source[0].Name = "x\xff\xfe"
		j.Plan.Flags = map[string][]string{"only": {"\xff"}}
		result, err := j.Do()
		require.NoError(t, err)
		require.True(t, result.Complete)
	}
}
