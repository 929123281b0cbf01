package bench

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
)

const shardColumns = 28672

// BenchmarkShard gathers the columns of one of 2, 8 or 64 devices from a tensor
// [8192, 28672] of BF16 (448 MiB) in the page cache into memory that is already
// there. The file is mapped, or read through ReadAt. In rows named all-CPUs
// every contestant uses as many threads as there are CPUs. The throughput
// counts the bytes of the shard.
//
// What bounds it: mapped, memory bandwidth, of which one CPU takes most: for 2
// devices, limit-memmove gains no more from two CPUs than we do. For 64 devices,
// whose rows have 896 bytes, it is the cache lines that each row touches:
// limit-lines, which reads one byte of each and writes nothing, takes more than half
// of our time. The processor cannot tell in advance where the next row is, 56 KiB
// further on in another page; ours prefetches it. ReadAt, the system call of each
// row, in which the kernel copies.
//
//   - ours: Open or NewFile before; Slice, Append
//   - maruel: Parse before; has no slices, so copy row by row
//   - rust: deserialize before; sliced_data into a Vec
//   - python: safe_open before; get_slice into a new array
//   - plain: one ReadAt for each row, one after the other
//   - limit-lines: one byte of each cache line that the shard is in
//   - limit-memmove: copy of the shard's bytes from one contiguous piece to another
func BenchmarkShard(b *testing.B) {
	rows := int(sized(8192, 256))
	path := input("shard.safetensors", func(path string) {
		header, dataSize := table{{Name: "w", DType: safetensors.BF16, Shape: []int{rows, shardColumns}}}.header()
		filledFile(path, header, dataSize)
	})
	readThrough(path)
	for _, devices := range []int{2, 8, 64} {
		s := shard{path: path, rows: rows, width: 2 * shardColumns / devices}
		s.work = work{bytes: int64(s.rows * s.width)}
		name := fmt.Sprintf("%d-devices-", devices)
		b.Run(name+"mapped", func(b *testing.B) { s.fromMapping(b, true) })
		b.Run(name+"mapped-all-CPUs", func(b *testing.B) { s.fromMapping(b, false) })
		b.Run(name+"ReadAt", s.fromReaderAt)
	}
}

// A shard is the columns of the second device. Its rows have width bytes and
// start there in the rows of the tensor.
type shard struct {
	work
	path        string
	rows, width int
}

// fromMapping runs one row. The peers use a single thread.
func (s shard) fromMapping(b *testing.B, peers bool) {
	b.Run("impl=ours", func(b *testing.B) {
		f := must(safetensors.Open(s.path))
		defer f.Close()
		s.ours(b, f)
	})
	if peers {
		b.Run("impl=maruel", func(b *testing.B) {
			f := must(maruel.Parse(mapFile(b, s.path)))
			s.eachRow(b, func(row []byte, offset int) { copy(row, f.Tensors[0].Data[offset:]) })
		})
		args := []string{"shard", s.path, "w", fmt.Sprint(s.width / 2), fmt.Sprint(s.width)}
		b.Run("impl=rust", s.foreign(rust, args...))
		b.Run("impl=python", s.foreign(python, args...))
	}
	b.Run("impl=limit-lines", s.lines)
	b.Run("impl=limit-memmove", s.memmove(int(s.bytes), runtime.GOMAXPROCS(0)))
}

func (s shard) lines(b *testing.B) {
	file := mapFile(b, s.path)
	data := file[len(file)-2*s.rows*shardColumns:]
	threads := runtime.GOMAXPROCS(0)
	s.measure(b, func() {
		parallel(threads, threads, func(i int) {
			var sum uint64
			for row := i * s.rows / threads; row < (i+1)*s.rows/threads; row++ {
				for line := row*2*shardColumns + s.width; line < row*2*shardColumns+2*s.width; line += 64 {
					sum += uint64(data[line])
				}
			}
			sink.Store(sum)
		})
	})
}

func (s shard) fromReaderAt(b *testing.B) {
	r := must(os.Open(s.path))
	defer r.Close()
	size := must(r.Stat()).Size()
	b.Run("impl=ours", func(b *testing.B) { s.ours(b, must(safetensors.NewFile(r, size))) })
	b.Run("impl=plain", func(b *testing.B) {
		data := io.NewSectionReader(r, size-int64(2*s.rows*shardColumns), size)
		s.eachRow(b, func(row []byte, offset int) { must(data.ReadAt(row, int64(offset))) })
	})
}

func (s shard) ours(b *testing.B, f *safetensors.File) {
	t := must(f.Tensor("w"))
	dst := make([]uint16, 0, s.bytes/2)
	s.measure(b, func() {
		columns := must(t.Slice(safetensors.All(), safetensors.Span(s.width/2, s.width)))
		must(safetensors.Append(dst, columns))
	})
}

// eachRow measures f, which fills the rows of the shard from their offsets in the tensor.
func (s shard) eachRow(b *testing.B, f func(row []byte, offset int)) {
	dst := make([]byte, s.bytes)
	s.measure(b, func() {
		for i := range s.rows {
			f(dst[i*s.width:][:s.width], i*2*shardColumns+s.width)
		}
	})
}
