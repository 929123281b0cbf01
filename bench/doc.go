// Package bench measures github.com/gosafetensors/safetensors against what a
// user would pick instead: the other Go packages, the Rust crate, the Python
// package and encoding/json. Contestants named limit-… do a part of the work
// that nobody can avoid, as fast as the machine can.
//
// # Running
//
// Everything measured is an ordinary Go benchmark. To run some of them:
//
//	go test -bench Parse/llama-70B -run '^$'
//
// To run all of them and write results.txt, RESULTS.md and charts/:
//
//	go run ./cmd/bench
//
// or the same in parts, whole jobs of the command in a folder of their own. xeon/ has
// older results of another processor.
//
//	go run ./cmd/bench -count 6 -work 'Convert|Open|Parse|Encode|Shard'
//	go run ./cmd/bench -count 6 -work 'Load|Write' -add
//	go run ./cmd/bench -count 6 -work 'Command|Diff|Dequantize|Sign|Transpose' -o jobs/results.txt
//
// It needs Linux 6.5 or later, taskset and 20 GB of disk. The Rust contestant needs cargo,
// the Python contestant python3, and that of Go 1.27 its toolchain, which go downloads;
// they are built on first use, and skipped if that fails unless
// BENCH_REQUIRE=rust,python,go127 names them. Other packages of Python
// are far too large to install for a benchmark. Where a variable names an
// interpreter that has them, it takes part:
//
//	SAFETENSORS_TORCH          torch, safetensors, numpy
//	SAFETENSORS_QUANT_PYTHON   compressed-tensors, transformers
//	SAFETENSORS_MODEL_SIGNING  model-signing
//	SAFETENSORS_LOADERS        safetensors 0.9, runai-model-streamer, fastsafetensors
//
// With -short all inputs are small, to check that everything works.
//
// # Fairness
//
// cmd/bench runs each benchmark in a process of its own, row by row, and repeats this
// for every round, so a slow moment of the machine hits all contestants of a row. Their
// order is another one in each round: what one frees, the next one gets. It restricts
// the process, and any other that this one starts, to one CPU; only the rows named
// all-CPUs may use every CPU, and only contestants that do so have one. The following
// holds for every benchmark:
//
//   - Freeing a table of tensors is part of its time. Rust and Python free it
//     inside the clock; Go collects garbage while the benchmark runs, on the
//     same CPU. Freeing tensor data is not measured.
//   - The Go heap holds 64 MB of ballast, as a program with weights would have.
//     Without it the collector would run after every 4 MB of allocations.
//   - cmd/bench sets GODEBUG=madvdontneed=0, so that free memory stays with
//     the process, as it does with Rust's allocator.
//   - Where a run is prepared, it waits for some seconds after that (-idle). A virtual
//     machine that returns free memory to its host needs about two; until then, memory
//     that another contestant has freed is several times cheaper than any other.
//   - An uncounted run precedes the timed ones, since other contestants have
//     used the caches meanwhile. After it, Go gets a heap of which 128 MB have
//     been in use, as after a while in any process. Where each run needs
//     preparation (a file evicted or removed), only the first run of a new
//     process counts.
//   - peak-B is the peak of resident memory during one run, less what was
//     resident before. It is exact only where a process runs one benchmark.
//
// # Adding a contestant
//
// A benchmark is named Work/row/impl=contestant, always three levels. For a contestant in
// Go, add a b.Run("impl=name", …) next to the others; its function prepares the input and
// calls work.measure, or is made by work.run if there is nothing to prepare. For Rust, add
// a task to rust/src/tasks.rs, for Python to python/contestant.py, and run it with
// work.rust or work.python. Then describe the contestant in the list above the benchmark:
// that comment becomes the text of RESULTS.md.
//
// The contestant impl=ours comes first; all ratios refer to it.
package bench
