// Bench measures this package beside others and writes RESULTS.md and charts/.
// Run it in the folder of the module:
//
//	go run ./cmd/bench
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/gosafetensors/safetensors/bench"
)

func main() {
	log.SetFlags(0)
	if err := keepMemory(); err != nil {
		log.Fatal(err)
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// keepMemory starts the program again such that the Go runtime leaves free memory
// with the process until the system needs it, as Rust's allocator does: on a
// virtual machine, getting it back can take longer than the work itself.
func keepMemory() error {
	const setting = "madvdontneed=0"
	if strings.Contains(os.Getenv("GODEBUG"), setting) {
		return nil
	}
	os.Setenv("GODEBUG", strings.TrimPrefix(os.Getenv("GODEBUG")+","+setting, ","))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, os.Environ())
}

func run() error {
	var (
		works  = flag.String("run", "", "only the works whose name matches this regular expression")
		counts = flag.Int("count", 7, "turns of every contestant")
		quick  = flag.Bool("quick", false, "small inputs and one short turn, to see that everything works; writes nothing")
		langs  = flag.Bool("foreign", true, "with the contestants in Rust and Python")
		tmp    = flag.String("tmp", os.TempDir(), "folder for the inputs, on the disk to measure; needs 6 GB")
		out    = flag.String("out", ".", "folder for RESULTS.md, results.json and charts")
		render = flag.Bool("render", false, "only write RESULTS.md and charts again, from results.json")
		memory = flag.String("memory", "", "used by the command itself: measure the memory of this contestant only")
		serve  = flag.Bool("serve", false, "used by the command itself: be a contestant")
	)
	flag.Parse()
	match, err := regexp.Compile(*works)
	if err != nil {
		return err
	}
	switch {
	case *render:
		return rerender(*out)
	case *serve:
		return bench.Serve(os.Stdin, os.Stdout)
	}
	b := &bench.Bench{Counts: *counts, Quick: *quick, Log: os.Stderr, RAMDir: "/dev/shm"}
	if *quick {
		b.Counts = 1
	}
	if *memory != "" {
		b.Dir, b.Log = *tmp, io.Discard
		peak, err := b.MemoryOf(*memory)
		fmt.Println(peak)
		return err
	}
	if b.Dir, err = os.MkdirTemp(*tmp, "safetensors-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.Dir)
	go removeOnInterrupt(b.Dir)
	if err := prepare(b, *langs); err != nil {
		return err
	}
	if err := b.Run(match); err != nil {
		return err
	}
	if *quick {
		return b.Report(io.Discard, bench.About{}, "charts")
	}
	return write(*out, &results{b.Describe(".", command()), b.Results})
}

// removeOnInterrupt leaves no gigabytes behind when the run is interrupted.
func removeOnInterrupt(dir string) {
	interrupt := make(chan os.Signal, 1)
	signal.Notify(interrupt, os.Interrupt, syscall.SIGTERM)
	<-interrupt
	os.RemoveAll(dir)
	os.Exit(1)
}

// prepare sets what the contestants in other processes need.
func prepare(b *bench.Bench, foreign bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.Self = []string{self, "-tmp", b.Dir, fmt.Sprintf("-quick=%v", b.Quick)}
	if !foreign {
		return nil
	}
	dir, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if b.Rust, err = bench.BuildRust(dir, os.Stderr); err != nil {
		log.Printf("without Rust: %v", err)
	}
	if b.Python, err = bench.BuildPython(dir, os.Stderr); err != nil {
		log.Printf("without Python: %v", err)
	}
	return nil
}

func command() string {
	return strings.Join(append([]string{"go run ./cmd/bench"}, os.Args[1:]...), " ")
}

// results is the content of results.json: all that RESULTS.md is made from.
type results struct {
	About   bench.About
	Results []bench.Result
}

func rerender(out string) error {
	text, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil {
		return err
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	return write(out, &r)
}

func write(out string, r *results) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "results.json"), append(text, '\n'), 0o666); err != nil {
		return err
	}
	b := &bench.Bench{Results: r.Results}
	if err := b.Charts(filepath.Join(out, "charts")); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(out, "RESULTS.md"))
	if err != nil {
		return err
	}
	if err := b.Report(f, r.About, "charts"); err != nil {
		return err
	}
	return f.Close()
}
