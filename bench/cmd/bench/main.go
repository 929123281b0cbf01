// Bench runs the benchmarks of this module, compares the contestants and writes
// results.txt, RESULTS.md and charts/. Run it in the folder of the module:
//
//	go run ./cmd/bench
//
// results.txt is in the standard format of Go benchmarks, so benchstat can
// compare the contestants (benchstat -col /impl results.txt) or two runs.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(0)
	var r runner
	flag.IntVar(&r.count, "count", 7, "rounds; confidence intervals need 6, significance needs 4")
	flag.StringVar(&r.work, "work", ".", "run only benchmarks that match this `pattern`, as in go test -bench")
	flag.StringVar(&r.benchtime, "benchtime", "100ms", "repeat a benchmark for this time in each round")
	flag.BoolVar(&r.short, "short", false, "use small inputs, to check that everything works")
	flag.StringVar(&r.folder, "tmp", os.TempDir(), "make the inputs in this `folder`, on the disk to measure; needs 20 GB")
	out := flag.String("o", "results.txt", "write the results to this `file`, RESULTS.md and charts/ next to it")
	flag.DurationVar(&r.idle, "idle", 3*time.Second, "wait this long before each run that has to be prepared")
	flag.BoolVar(&r.add, "add", false, "keep what the file of results has, which are those of other works")
	render := flag.Bool("render", false, "run nothing, only write RESULTS.md and charts/ from the results")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var failed error
	if !*render {
		failed = r.run(ctx, *out, strings.Join(append([]string{"go run ./cmd/bench"}, os.Args[1:]...), " "))
	}
	if err := errors.Join(failed, writeReport(*out, ".")); err != nil {
		log.Fatal(err)
	}
}

// writeReport writes RESULTS.md and charts/ next to a file of results. source is
// the folder of the benchmarks.
func writeReport(name, source string) error {
	res, err := readResults(name)
	if err != nil {
		return err
	}
	text, err := res.markdown(source)
	if err != nil {
		return err
	}
	folder := filepath.Dir(name)
	charts := filepath.Join(folder, "charts")
	if err := os.MkdirAll(charts, 0o777); err != nil {
		return err
	}
	for _, w := range res.works {
		if err := w.chart(charts); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "RESULTS.md"), text, 0o666)
}
