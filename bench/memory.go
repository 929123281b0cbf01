package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
)

// measureMemory returns the peak resident memory of a contestant, 0 if it
// cannot be measured.
func (b *Bench) measureMemory(c Case, p Contestant) int64 {
	measure := p.Memory
	if measure == nil {
		if len(b.Self) == 0 {
			return 0
		}
		measure = func() (int64, error) { return b.memoryInChild(c, p) }
	}
	n, err := measure()
	if err != nil {
		fmt.Fprintf(b.Log, "  %s: memory of %s: %v\n", c.Name, p.Name, err)
		return 0
	}
	return n
}

// memoryInChild has a new process run the contestant by MemoryOf.
func (b *Bench) memoryInChild(c Case, p Contestant) (int64, error) {
	args := append(b.Self[1:len(b.Self):len(b.Self)], "-memory", b.id(c, p))
	cmd := exec.Command(b.Self[0], args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
}

func (b *Bench) id(c Case, p Contestant) string {
	return b.work + "/" + c.Name + "/" + p.Name
}

// errMeasured ends a work when the only contestant asked for has run.
var errMeasured = errors.New("measured")

// MemoryOf runs one contestant once and returns the peak of the resident
// memory beyond what was resident before.
func (b *Bench) MemoryOf(id string) (int64, error) {
	b.memoryOf = id
	work, _, _ := strings.Cut(id, "/")
	err := b.Run(regexp.MustCompile("^" + regexp.QuoteMeta(work) + "$"))
	if !errors.Is(err, errMeasured) {
		return 0, fmt.Errorf("no contestant %q (%w)", id, err)
	}
	return b.Results[0].Memory, nil
}

// runOnly is compare in a process that measures memory.
func (b *Bench) runOnly(c Case) error {
	for _, p := range c.Contestants {
		if b.id(c, p) != b.memoryOf {
			continue
		}
		memory, err := peakOf(os.Getpid(), func() error {
			if p.Before != nil {
				if err := p.Before(); err != nil {
					return err
				}
			}
			_, err := p.Run(1)
			return err
		})
		if err != nil {
			return err
		}
		b.Results = []Result{{Memory: memory}}
		return errMeasured
	}
	return nil
}

// peakOf returns by how much the resident memory of a process is larger at
// its peak during run than before.
func peakOf(pid int, run func() error) (int64, error) {
	debug.FreeOSMemory()
	// 5 sets the peak back to what is resident now: proc_pid_clear_refs(5).
	err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
	if err != nil {
		return 0, err
	}
	before, err := status(pid, "VmRSS")
	if err != nil {
		return 0, err
	}
	if err := run(); err != nil {
		return 0, err
	}
	peak, err := status(pid, "VmHWM")
	return peak - before, err
}

// status returns a size in bytes from /proc/pid/status.
func status(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(field+":")); ok {
			var kB int64
			_, err := fmt.Sscanf(string(rest), "%d kB", &kB)
			return kB * kiB, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", field, pid)
}
