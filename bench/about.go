package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// About is what a reader has to know to repeat a run.
type About struct {
	Command   string
	Date      time.Time
	Counts    int
	Processor string
	CPUs      int
	Memory    int64
	Kernel    string
	Versions  []string
}

// Describe finds out about this machine and about what is compared. dir is
// the folder of this module.
func (b *Bench) Describe(dir, command string) About {
	return About{
		Command:   command,
		Date:      time.Now().UTC(),
		Counts:    b.Counts,
		Processor: field("/proc/cpuinfo", "model name"),
		CPUs:      runtime.NumCPU(),
		Memory:    memoryTotal(),
		Kernel:    strings.TrimSpace(readString("/proc/sys/kernel/osrelease")),
		Versions:  append(goVersions(), b.foreignVersions(dir)...),
	}
}

func (a About) String() string {
	return fmt.Sprintf(`%s on %s (%d CPUs, %s of memory), Linux %s, %s/%s:

    %s

Every row is the median of %d turns in which the contestants alternate (three times as many if they are short,
%d if one takes more than %v); "time / ours" says how many times longer than this package it takes, as the
median of that ratio over the turns: a slow moment of the machine hits both. Compare within a table only.

Getting rid of a table of tensors is part of its time: Rust and Python free it within the clock, Go collects garbage
while it runs, in a process whose heap holds %s, as that of a program with weights does (else the collector
starts every 4 MB). Freeing the data of tensors is left out. Go runs with GODEBUG=madvdontneed=0, so that free
memory stays with the process, as it does with Rust's allocator. Memory is the peak of resident memory of a run
in a new process beyond what was resident before.

Versions: %s.
`, a.Date.Format(time.DateOnly), a.Processor, a.CPUs, size(a.Memory), a.Kernel, runtime.GOOS, runtime.GOARCH,
		a.Command, a.Counts, fewTurns, longTurn, size(usualHeap), strings.Join(a.Versions, ", "))
}

// goVersions are those of Go and of the contestants in Go.
func goVersions() []string {
	versions := []string{runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versions
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/maruel/safetensors", "github.com/nlpodyssey/safetensors", "github.com/x448/float16":
			versions = append(versions, m.Path+" "+m.Version)
		}
	}
	return versions
}

// foreignVersions are those of Rust, Python and their packages.
func (b *Bench) foreignVersions(dir string) (versions []string) {
	if len(b.Rust) > 0 {
		versions = append(versions, output("rustc", "--version"))
		locked := readString(filepath.Join(dir, "rust", "Cargo.lock"))
		for _, crate := range []string{"safetensors", "bintensors", "memmap2"} {
			match := regexp.MustCompile(`name = "` + crate + `"\nversion = "(.*)"`).FindStringSubmatch(locked)
			if match != nil {
				versions = append(versions, "crate "+crate+" "+match[1])
			}
		}
	}
	if len(b.Python) > 0 {
		const list = "import sys, numpy, safetensors; " +
			"print(f'Python {sys.version.split()[0]}, safetensors {safetensors.__version__} with numpy {numpy.__version__}')"
		versions = append(versions, output(b.Python[0], "-c", list))
	}
	return versions
}

func output(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return name + " of unknown version"
	}
	return strings.TrimSpace(string(out))
}

func readString(path string) string {
	text, _ := os.ReadFile(path)
	return string(text)
}

// field returns the first value of a key in a file of lines "key : value".
func field(path, key string) string {
	for line := range bytes.Lines([]byte(readString(path))) {
		if k, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func memoryTotal() int64 {
	var kB int64
	fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d kB", &kB)
	return kB * kiB
}
