package bench

import (
	"bytes"
	"maps"
	"os"
	"testing"

	"github.com/gosafetensors/safetensors"
)

// BenchmarkMicro has the rows of the reference's own benchmark, benches/benchmark.rs of the crate
// 0.8.0: a checkpoint of five F32 tensors of 2 MiB, all of it in memory. The row parse reads its
// header; the other rows write the checkpoint into memory, reused from the run before or fresh.
//
// What bounds it: writing, the copy of the data, and in the row write-fresh the new memory. The
// Rust crate returns a new vector in both rows, but its allocator hands out the pages that the
// run before has just freed. Go's frees memory when the collector runs, and clears all memory that
// it hands out, so a program that writes to memory often should keep its buffer.
//
//   - ours: Parse; Write to a bytes.Buffer, which is the same one in each run, or a new one of the right size
//   - rust: read_metadata; serialize
//   - limit-copy: copy of the bytes of the file, into the same memory or into a new slice
func BenchmarkMicro(b *testing.B) {
	path := input("micro.safetensors", func(path string) {
		header, dataSize := uniform(5, sized(10*miB, miB)).header()
		filledFile(path, header, dataSize)
	})
	file := must(os.ReadFile(path))
	tensors := maps.Collect(must(safetensors.Parse(file)).Tensors())
	b.Run("parse", func(b *testing.B) {
		w := work{}
		b.Run("impl=ours", w.run(func() { must(safetensors.Parse(file)) }))
		b.Run("impl=rust", w.foreign(rust, "parse", path))
	})
	reused := bytes.NewBuffer(make([]byte, 0, len(file)))
	for name, buffer := range map[string]func() *bytes.Buffer{
		"write-reused": func() *bytes.Buffer { reused.Reset(); return reused },
		"write-fresh":  func() *bytes.Buffer { return bytes.NewBuffer(make([]byte, 0, len(file))) },
	} {
		b.Run(name, func(b *testing.B) {
			w := work{bytes: int64(len(file))}
			b.Run("impl=ours", w.run(func() { check(safetensors.Write(buffer(), tensors, nil)) }))
			b.Run("impl=rust", w.foreign(rust, "serialize", path))
			b.Run("impl=limit-copy", w.run(func() { must(buffer().Write(file)) }))
		})
	}
}
