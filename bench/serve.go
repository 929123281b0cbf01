package bench

import (
	"bufio"
	"fmt"
	"io"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Serve answers requests as the contestants in other languages do, see
// process, with the tasks of Go contestants that want a process of their own.
func Serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		answer, err := serve(strings.Split(lines.Text(), "\t"))
		if err != nil {
			answer = "error: " + err.Error()
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func serve(request []string) (string, error) {
	if len(request) != 3 {
		return "", fmt.Errorf("want a task, a count and a file, have %q", request)
	}
	load := loadTasks[request[0]]
	if load == nil {
		return "", fmt.Errorf("unknown task %q", request[0])
	}
	n, err := strconv.Atoi(request[1])
	if err != nil {
		return "", err
	}
	var total time.Duration
	for range n {
		debug.FreeOSMemory() // a large allocation is new memory in other languages too
		start := time.Now()
		if err := load(request[2]); err != nil {
			return "", err
		}
		total += time.Since(start)
	}
	return strconv.FormatInt(int64(total), 10), nil
}

// alone returns a Go contestant in a process of its own. What one package
// does to the heap, asking for huge pages say, stays with the heap, and would
// help whoever is next in the same process.
func (b *Bench) alone(name, does, task, file string) *Contestant {
	if len(b.Self) == 0 {
		load := loadTasks[task]
		return &Contestant{Name: name, Does: does, Run: loop(func() error { return load(file) })}
	}
	return foreign(append(b.Self[:len(b.Self):len(b.Self)], "-serve"), name, does, []string{task, file})
}
