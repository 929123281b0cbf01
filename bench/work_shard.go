package bench

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
)

var shardWork = Work{
	Name:  "shard",
	Title: "A shard of columns",
	Intro: `The columns of one of 2, 8 or 64 devices out of a tensor [8192, 28672] of BF16 (448 MiB) in the page cache,
gathered into memory that is already there. The throughput counts the bytes of the shard.`,
	Unit:  "of shard",
	Chart: "Column shard gathered (GB/s of shard; longer is better)",
	run:   runShard,
}

const shardColumns = 28672

func runShard(b *Bench) error {
	rows := int(b.size(8192, 256))
	path, err := b.file("shard.safetensors", func(path string) error {
		header, dataSize := table{{"w", "BF16", []int{rows, shardColumns}}}.header()
		return filledFile(path, header, dataSize)
	})
	if err != nil {
		return err
	}
	file, err := mapFile(path)
	if err != nil {
		return err
	}
	defer unmap(file)
	sink.Store(byteSum(file)) // everything is in the page cache now
	for _, devices := range []int{2, 8, 64} {
		if err := b.shardOne(path, file, rows, devices); err != nil {
			return err
		}
	}
	return nil
}

func (b *Bench) shardOne(path string, file []byte, rows, devices int) error {
	width := shardColumns / devices
	start, stop := width, 2*width // the second device
	dst := make([]uint16, 0, rows*width)
	bytes := 2 * rows * width

	mapped, err := safetensors.Open(path)
	if err != nil {
		return err
	}
	defer mapped.Close()
	peer, err := maruel.Parse(file)
	if err != nil {
		return err
	}
	source := peer.Tensors[0].Data
	from, to := make([]byte, bytes), make([]byte, bytes)
	err = b.compare(Case{
		Name:  fmt.Sprintf("1/%d, mapped", devices),
		Bytes: int64(bytes),
		Contestants: only(
			&Contestant{Name: "**this package**", Does: "`Open` before; `Slice`, `Append`",
				Run: loop(func() error { return gather(mapped, dst, start, stop) })},
			&Contestant{Name: "maruel", Does: "`Parse` of the mapped file before; has no slices: `copy` row by row",
				Run: loop(func() error { gatherRows(to, source, rows, 2*start, 2*stop); return nil })},
			b.rust("safetensors", "`deserialize` before; `sliced_data` into a Vec", "shard", path, "w", fmt.Sprint(start), fmt.Sprint(stop)),
			b.python("safetensors", "`safe_open` before; `get_slice` into a new array", "shard", path, "w", fmt.Sprint(start), fmt.Sprint(stop)),
			&Contestant{Name: "limit: memmove", Does: "`copy` of the shard's bytes from and to one piece",
				Run: loop(func() error { copy(to, from); return nil })},
		),
	})
	if err != nil {
		return err
	}
	return b.shardReadAt(path, dst, rows, start, stop)
}

func (b *Bench) shardReadAt(path string, dst []uint16, rows, start, stop int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	counted := &countingReader{r: f}
	opened, err := safetensors.NewFile(counted, info.Size())
	if err != nil {
		return err
	}
	counted.bytes.Store(0)
	if err := gather(opened, dst, start, stop); err != nil {
		return err
	}
	share := float64(counted.bytes.Load()) / float64(2*rows*(stop-start))
	dataStart := info.Size() - int64(2*rows*shardColumns)
	to := make([]byte, 2*rows*(stop-start))
	return b.compare(Case{
		Name:  fmt.Sprintf("1/%d, ReadAt", shardColumns/(stop-start)),
		Bytes: int64(len(to)),
		Contestants: []Contestant{
			{Name: "**this package**",
				Does: fmt.Sprintf("`NewFile` before; `Slice`, `Append`; reads %.2f times the bytes of the shard", share),
				Run:  loop(func() error { return gather(opened, dst, start, stop) })},
			{Name: "plain Go", Does: "one `ReadAt` for each row, one after the other",
				Run: loop(func() error { return readRows(f, to, rows, dataStart, 2*start, 2*stop) })},
		},
	})
}

func gather(f *safetensors.File, dst []uint16, start, stop int) error {
	t, err := f.Tensor("w")
	if err != nil {
		return err
	}
	if t, err = t.Slice(safetensors.All(), safetensors.Span(start, stop)); err != nil {
		return err
	}
	_, err = safetensors.Append(dst[:0], t)
	return err
}

func gatherRows(dst, src []byte, rows, start, stop int) {
	for row := range rows {
		row := src[row*2*shardColumns:]
		dst = dst[copy(dst, row[start:stop]):]
	}
}

func readRows(r io.ReaderAt, dst []byte, rows int, offset int64, start, stop int) error {
	width := stop - start
	for row := range rows {
		_, err := r.ReadAt(dst[row*width:][:width], offset+int64(row*2*shardColumns+start))
		if err != nil {
			return err
		}
	}
	return nil
}

// A countingReader counts the bytes that are asked of a reader.
type countingReader struct {
	r     io.ReaderAt
	bytes atomic.Int64
}

func (c *countingReader) ReadAt(p []byte, offset int64) (int, error) {
	c.bytes.Add(int64(len(p)))
	return c.r.ReadAt(p, offset)
}
