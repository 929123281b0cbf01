package bench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A process is a contestant that is not written in Go. It answers requests of
// one line, "task \t n \t file \t arguments…", with the nanoseconds that n runs
// took: see rust/src/main.rs and python/contestant.py.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startProcess(command []string) (*process, error) {
	p := &process{cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, bufio.NewReader(out)
	return p, p.cmd.Start()
}

func (p *process) run(task []string, n int) (time.Duration, error) {
	request := append([]string{task[0], strconv.Itoa(n)}, task[1:]...)
	if _, err := io.WriteString(p.in, strings.Join(request, "\t")+"\n"); err != nil {
		return 0, err
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("%s died: %w", filepath.Base(p.cmd.Path), err)
	}
	answer = strings.TrimSpace(answer)
	if reason, ok := strings.CutPrefix(answer, "error: "); ok {
		return 0, errors.New(reason)
	}
	nanoseconds, err := strconv.ParseInt(answer, 10, 64)
	return time.Duration(nanoseconds), err
}

// close ends the process, which exits at the end of its input.
func (p *process) close() {
	p.in.Close()
	p.cmd.Wait()
}

// rust returns the Rust crate as a contestant, nil if it is left out.
func (b *Bench) rust(name, does string, task ...string) *Contestant {
	return foreign(b.Rust, "Rust "+name, does, task)
}

// python returns the Python package as a contestant, nil if it is left out.
func (b *Bench) python(name, does string, task ...string) *Contestant {
	return foreign(b.Python, "Python "+name, does, task)
}

// foreign returns a contestant that runs in a process of its own, started at
// its first run.
func foreign(command []string, name, does string, task []string) *Contestant {
	if len(command) == 0 {
		return nil
	}
	var p *process
	run := func(n int) (time.Duration, error) {
		if p == nil {
			var err error
			if p, err = startProcess(command); err != nil {
				return 0, err
			}
		}
		return p.run(task, n)
	}
	end := func() {
		if p != nil {
			p.close()
		}
	}
	memory := func() (int64, error) { return foreignMemory(command, task) }
	return &Contestant{Name: name, Does: does, Run: run, Close: end, Memory: memory}
}

// foreignMemory returns the peak resident memory of a task in a new process
// beyond what it needs to prepare it.
func foreignMemory(command, task []string) (int64, error) {
	p, err := startProcess(command)
	if err != nil {
		return 0, err
	}
	defer p.close()
	if _, err := p.run(task, 0); err != nil {
		return 0, err
	}
	return peakOf(p.cmd.Process.Pid, func() error {
		_, err := p.run(task, 1)
		return err
	})
}

// BuildRust builds the contestant in rust/ and returns its command.
func BuildRust(dir string, log io.Writer) ([]string, error) {
	build := exec.Command("cargo", "build", "--release", "--locked", "--quiet", "--target-dir", "target")
	build.Dir = filepath.Join(dir, "rust")
	build.Stdout, build.Stderr = log, log
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("cargo build: %w", err)
	}
	return []string{filepath.Join(build.Dir, "target", "release", "contestant")}, nil
}

// BuildPython makes a virtual environment in python/, if there is none yet,
// and returns the command of the contestant there.
func BuildPython(dir string, log io.Writer) ([]string, error) {
	dir = filepath.Join(dir, "python")
	python := filepath.Join(dir, "venv", "bin", "python")
	for _, args := range [][]string{
		{"python3", "-m", "venv", filepath.Join(dir, "venv")},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
			"--requirement", filepath.Join(dir, "requirements.txt")},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(args[:3], " "), err)
		}
	}
	return []string{python, filepath.Join(dir, "contestant.py")}, nil
}
