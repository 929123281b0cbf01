package parts

import (
	"errors"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/stretchr/testify/require"
)

var errInjected = errors.New("injected fault")

// A flaky folder fails once, at one of the calls that ask what is there.
type flaky struct {
	dest.Shared
	at, seen int
}

func (f *flaky) fails() bool {
	f.seen++
	return f.seen == f.at
}

func (f *flaky) Files(dir string, fresh bool) (map[string]dest.Stored, error) {
	if f.fails() {
		return nil, errInjected
	}
	return f.Shared.Files(dir, fresh)
}

func (f *flaky) Read(name string, n int64) ([]byte, error) {
	if f.fails() {
		return nil, errInjected
	}
	return f.Shared.Read(name, n)
}

func (f *flaky) Open() (*safetensors.File, error) {
	if f.fails() {
		return nil, errInjected
	}
	return f.Shared.Open()
}

// TestEveryQuestion has each question to the folder fail once, of the part of a new job, of one that
// replaces the plan of another job, of one that finds its work done, and of the last part. The part
// ends with that error, which another try helps against, and another try writes the checkpoint.
func TestEveryQuestion(t *testing.T) {
	for _, shards := range []int{1, 3} {
		for name, before := range map[string]func(do func(tag byte, k, n int)){
			"new":      func(func(byte, int, int)) {},
			"replaces": func(do func(byte, int, int)) { do('2', 5-shards, 5-shards) },
			"last":     func(do func(byte, int, int)) { do('1', 1, 2) },
			"done":     func(do func(byte, int, int)) { do('1', 1, 2); do('1', 2, 2) },
		} {
			for at := 1; ; at++ {
				job := jobs(t, shards)
				before(func(tag byte, k, n int) { require.NoError(t, errorOf(job(tag, Part{k, n}).Do())) })
				one := job('1', Part{2, 2})
				f := &flaky{Shared: one.To, at: at}
				one.To = f
				_, err := one.Do()
				if f.seen < at {
					require.NoError(t, err, "%s, %d shards", name, shards)
					require.Greater(t, at, 3)
					break
				}
				require.ErrorIs(t, err, errInjected, "%s, %d shards, question %d", name, shards, at)
				require.NotErrorAs(t, err, new(Refusal))
				for k := 1; k <= 2; k++ {
					require.NoError(t, errorOf(job('1', Part{k, 2}).Do()))
				}
				if shards == 3 {
					requireCopies(t, one.To, '1')
				}
			}
		}
	}
}
