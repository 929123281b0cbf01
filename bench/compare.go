package bench

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// A Case is one input, and everyone who works on it. The first contestant is
// this package: the ratios of the others refer to it.
type Case struct {
	Name        string
	Bytes       int64 // that one run handles; see Work.Unit
	Memory      bool  // measure memory too
	Contestants []Contestant
}

// A Contestant does the work of a case.
type Contestant struct {
	Name string
	Does string // what exactly, for the report

	// Before, if not nil, prepares a run and is not timed. Each turn is then
	// a single run.
	Before func() error

	Run   Runner
	Close func() // may be nil

	// Memory measures how much resident memory a run needs at its peak. If it
	// is nil, the contestant is run in a new process of this program.
	Memory func() (int64, error)
}

// A Runner does a work n times and returns the time of all n together.
type Runner func(n int) (time.Duration, error)

// loop is the Runner of a function.
func loop(work func() error) Runner {
	return func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := work(); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

// A Result is what was measured of one contestant in one case.
type Result struct {
	Work, Case, Contestant, Does string

	Bytes   int64           `json:",omitempty"` // Case.Bytes
	Samples []time.Duration `json:",omitempty"` // of one run each, turn by turn
	Memory  int64           `json:",omitempty"` // peak resident bytes, beyond those before the run
	Err     string          `json:",omitempty"` // why there is nothing else
}

// Median returns the median of the samples, 0 if there are none.
func (r Result) Median() time.Duration { return median(r.Samples) }

// Ratio returns how many times longer than another contestant it takes, 0 if
// that is not known: the median of the ratios in each turn that both took. A slow
// moment of the machine hits both.
func (r Result) Ratio(other Result) float64 {
	ratios := make([]float64, min(len(r.Samples), len(other.Samples)))
	for i := range ratios {
		ratios[i] = float64(r.Samples[i]) / float64(other.Samples[i])
	}
	return median(ratios)
}

func median[T time.Duration | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

const (
	minTurn  = 100 * time.Millisecond // a turn repeats shorter runs
	longTurn = time.Second            // who needs longer takes fewer turns
	fewTurns = 3
)

// compare measures all contestants of a case, who take turns.
func (b *Bench) compare(c Case) error {
	if b.memoryOf != "" {
		return b.runOnly(c)
	}
	results := make([]Result, len(c.Contestants))
	runs := make([]int, len(c.Contestants)) // per turn
	turns := make([]int, len(c.Contestants))
	for i, p := range c.Contestants {
		results[i] = Result{Work: b.work, Case: c.Name, Contestant: p.Name, Does: p.Does, Bytes: c.Bytes}
		var err error
		if runs[i], turns[i], err = b.warmUp(p); err != nil {
			results[i].Err = err.Error()
		}
	}
	for turn := range slices.Max(turns) {
		for i, p := range c.Contestants {
			if turn >= turns[i] {
				continue
			}
			sample, err := takeTurn(p, runs[i])
			if err != nil {
				return fmt.Errorf("%s: %s: %w", c.Name, p.Name, err)
			}
			results[i].Samples = append(results[i].Samples, sample)
		}
	}
	for i, p := range c.Contestants {
		if p.Close != nil {
			p.Close()
		}
		if c.Memory && results[i].Err == "" {
			results[i].Memory = b.measureMemory(c, p)
		}
		b.log(results[i])
	}
	b.Results = append(b.Results, results...)
	return nil
}

// warmUp runs a contestant once and says how many runs make a turn and how
// many turns it takes. A contestant that fails here takes none: it cannot do
// this work, which is a result too.
func (b *Bench) warmUp(p Contestant) (runs, turns int, err error) {
	once, err := takeTurn(p, 1)
	if err != nil {
		return 0, 0, err
	}
	runs, turns = 1, b.Counts
	if p.Before == nil && !b.Quick {
		// The first run is slower than the others: measure again what fits.
		runs = max(1, int(minTurn/4/max(once, 1)))
		if runs > 1 {
			if once, err = takeTurn(p, runs); err != nil {
				return 0, 0, err
			}
			runs = max(1, int(minTurn/max(once, 1)))
		}
	}
	switch {
	case once > longTurn:
		turns = min(turns, fewTurns)
	case once*time.Duration(runs) < 2*minTurn && !b.Quick:
		turns *= 3 // cheap, and short turns suffer most from noise
	}
	return runs, turns, nil
}

// takeTurn returns the time of one run. The garbage of whoever was first is
// collected before, so that it is not charged to the next. A run that can be
// repeated is done once before, uncounted: others have had the caches meanwhile.
func takeTurn(p Contestant, runs int) (time.Duration, error) {
	runtime.GC()
	before := p.Before
	if before == nil {
		before = func() error { _, err := p.Run(1); return err }
	}
	if err := before(); err != nil {
		return 0, err
	}
	total, err := p.Run(runs)
	return total / time.Duration(runs), err
}

// only returns the contestants that are there: those in Rust or Python are
// nil where they could not be built.
func only(contestants ...*Contestant) []Contestant {
	var present []Contestant
	for _, c := range contestants {
		if c != nil {
			present = append(present, *c)
		}
	}
	return present
}

func (b *Bench) log(r Result) {
	if r.Err != "" {
		fmt.Fprintf(b.Log, "  %-32s %-44s %s\n", r.Case, r.Contestant, r.Err)
		return
	}
	fmt.Fprintf(b.Log, "  %-32s %-44s %10s (%s to %s)", r.Case, r.Contestant,
		duration(r.Median()), duration(slices.Min(r.Samples)), duration(slices.Max(r.Samples)))
	if r.Memory > 0 {
		fmt.Fprintf(b.Log, " %s", size(r.Memory))
	}
	fmt.Fprintln(b.Log)
}
