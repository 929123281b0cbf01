package safetensors_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"golang.org/x/exp/mmap"
)

func ExampleOpen() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, err := f.Tensor("model.embed_tokens.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t, t.Len())
	fmt.Println(f.Metadata()["format"])
	// Output:
	// BF16 [64,32] 2048
	// pt
}

// Views of a loaded file are ordinary memory: they outlive Close and can be written
// to.
func ExampleLoad() {
	f, err := safetensors.Load("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	t, err := f.Tensor("model.layers.0.mlp.up_proj.weight")
	if err != nil {
		log.Fatal(err)
	}
	raw, err := safetensors.View[byte](t)
	if err != nil {
		log.Fatal(err)
	}
	f.Close()
	clear(raw)
	fmt.Println(len(raw))
	// Output: 3072
}

func ExampleParse() {
	// In a program, data may come from a go:embed directive.
	data, err := os.ReadFile("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	f, err := safetensors.Parse(data)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f)
	// Output: 22 tensors, 44160 bytes
}

// Read takes any stream, such as a member of a tar file, the body of a response, or standard
// input. It reads the stream into memory.
func ExampleRead() {
	weights, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{0.5, -0.5})
	if err != nil {
		log.Fatal(err)
	}
	r, w := io.Pipe()
	go func() {
		w.CloseWithError(safetensors.Write(w, map[string]safetensors.Tensor{"weights": weights}, nil))
	}()
	f, err := safetensors.Read(r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Elements[float32](f, "weights", 2))
	// Output: [0.5 -0.5] <nil>
}

// NewFile takes any io.ReaderAt: an os.File, a mapping, an object in a store, or an
// io.SectionReader of an uncompressed member of an archive (zip.File.DataOffset). NewFile reads
// only the header. Tensors are read on demand.
func ExampleNewFile() {
	r, err := mmap.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	f, err := safetensors.NewFile(r, int64(r.Len()))
	if err != nil {
		log.Fatal(err)
	}
	ids, err := safetensors.Elements[int64](f, "model.position_ids")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids[:5])
	// Output: [0 1 2 3 4]
}

// A program that reads the bytes itself finds the place of each tensor in the header. ReadHeader
// reads it from any stream; File.Header returns the header of an open File.
func ExampleReadHeader() {
	r, err := os.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	h, err := safetensors.ReadHeader(r)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range h.Tensors[:2] {
		fmt.Println(t.Name, t.DType, t.Shape, "from byte", h.DataStart+t.DataOffsets[0], "to", h.DataStart+t.DataOffsets[1])
	}
	// Output:
	// model.position_ids I64 [1 64] from byte 2176 to 2688
	// model.layers.0.input_layernorm.weight F32 [32] from byte 2688 to 2816
}

// Elements returns the elements of a tensor by its name. In the expected shape, -1 stands for any
// size of a dimension. A tensor with another shape is an error.
func ExampleElements() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f)
	embedding, err := safetensors.Elements[float32](f, "model.embed_tokens.weight", -1, 32)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(embedding)/32, "rows")
	_, err = safetensors.Elements[float32](f, "model.embed_tokens.weight", 64, 32, 1)
	fmt.Println(err)
	// Output:
	// 22 tensors, 44160 bytes
	// 64 rows
	// safetensors: tensor "model.embed_tokens.weight": its shape is [64,32], not [64,32,1]
}

func ExampleFile_Tensor() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, err := f.Tensor("lm_head.weight")
	if errors.Is(err, fs.ErrNotExist) {
		t, err = f.Tensor("model.embed_tokens.weight") // in many models, the two are tied
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.DType(), t.Shape())
	// Output: F16 [64 32]
}

func ExampleFile_Tensors() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for name, t := range f.Tensors() {
		if strings.HasPrefix(name, "model.layers.0.mlp.") {
			fmt.Println(name, t.DType(), t.Shape())
		}
	}
	// Output:
	// model.layers.0.mlp.down_proj.weight BF16 [32 48]
	// model.layers.0.mlp.gate_proj.weight BF16 [48 32]
	// model.layers.0.mlp.up_proj.weight BF16 [48 32]
}

// Headers shows which shard of a checkpoint holds which tensors.
func ExampleFile_Headers() {
	f, err := safetensors.Open("testdata/tied/sharded")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for file, h := range f.Headers() {
		fmt.Println(file, h.Tensors[0].Name)
	}
	// Output:
	// model-00001-of-00003.safetensors embed.weight
	// model-00002-of-00003.safetensors layers.0.bias
	// model-00003-of-00003.safetensors layers.1.bias
}

func ExampleFormatError() {
	pointer := []byte("version https://git-lfs.github.com/spec/v1\n")
	_, err := safetensors.Parse(pointer)
	var broken *safetensors.FormatError
	if errors.As(err, &broken) {
		fmt.Println(broken.Reason)
	}
	// Output: this is a Git LFS pointer (git lfs pull fetches the content), not a safetensors file
}

// A view copies nothing, but not every tensor has one. Append always works.
func ExampleView() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close() // ids must not be used afterwards
	t, err := f.Tensor("model.position_ids")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := safetensors.View[int64](t)
	if errors.Is(err, errors.ErrUnsupported) {
		ids, err = safetensors.Append[int64](nil, t)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids[len(ids)-1])
	// Output: 63
}

// Append converts BF16 to float32, which represents every value of BF16. A program that copies a
// whole model passes the same memory to each call.
func ExampleAppend() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	var buf []float32
	sum := 0.0
	for _, t := range f.Tensors() {
		if t.DType() != safetensors.BF16 {
			continue
		}
		if buf, err = safetensors.Append(buf[:0], t); err != nil { // grows until it holds the largest tensor
			log.Fatal(err)
		}
		for _, w := range buf {
			sum += float64(w)
		}
	}
	fmt.Printf("%.3f\n", sum)
	// Output: -4.801
}

// A conversion that rounds must be requested with Convert. It happens when the elements are read,
// here by Append.
func ExampleTensor_Convert() {
	t, err := safetensors.NewTensor(safetensors.F32, []int{3}, []float32{1, math.Pi, 1e6})
	if err != nil {
		log.Fatal(err)
	}
	half, err := t.Convert(safetensors.F16)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(half)
	fmt.Println(safetensors.Append[float32](nil, half))
	// Output:
	// F16 [3]
	// [1 3.140625 +Inf] <nil>
}

// In tensor parallelism, rank 1 of 2 needs a Span of columns: [:, 2:4] in Python. At drops a
// dimension, and By skips elements: [-1, ::2] in Python.
func ExampleTensor_Slice() {
	t, err := safetensors.NewTensor(safetensors.F32, []int{3, 4}, []float32{
		0, 1, 2, 3,
		10, 11, 12, 13,
		20, 21, 22, 23,
	})
	if err != nil {
		log.Fatal(err)
	}
	columns, err := t.Slice(safetensors.All(), safetensors.Span(2, 4))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, columns))
	part, err := t.Slice(safetensors.At(-1), safetensors.All().By(2))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, part))
	// Output:
	// [2 3 12 13 22 23] <nil>
	// [20 22] <nil>
}

// Concat joins rows that a list of indices selects, such as the embeddings of some tokens:
// t[[2, 0]] in Python. Reading the result reads only these rows.
func ExampleTensor_Slice_rows() {
	t, err := safetensors.NewTensor(safetensors.F32, []int{3, 2}, []float32{
		0, 1,
		10, 11,
		20, 21,
	})
	if err != nil {
		log.Fatal(err)
	}
	var rows []safetensors.Tensor
	for _, i := range []int{2, 0} {
		row, err := t.Slice(safetensors.Span(i, i+1))
		if err != nil {
			log.Fatal(err)
		}
		rows = append(rows, row)
	}
	selected, err := safetensors.Concat(0, rows...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(selected)
	fmt.Println(safetensors.Append[float32](nil, selected))
	// Output:
	// F32 [2,2]
	// [20 21 0 1] <nil>
}

// Some frameworks store a weight as [in, out], others as [out, in]. It is transposed when it is
// read, here by Append; a program may also write it with WriteFile.
func ExampleTensor_Transpose() {
	t, err := safetensors.NewTensor(safetensors.F32, []int{2, 3}, []float32{
		0, 1, 2,
		10, 11, 12,
	})
	if err != nil {
		log.Fatal(err)
	}
	columns, err := t.Transpose()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(columns)
	fmt.Println(safetensors.Append[float32](nil, columns))
	// Output:
	// F32 [3,2]
	// [0 10 1 11 2 12] <nil>
}

// WriteTo writes the bytes of a tensor row by row, and little-endian on every machine.
func ExampleTensor_WriteTo() {
	t, err := safetensors.NewTensor(safetensors.I16, []int{2}, []int16{1, -2})
	if err != nil {
		log.Fatal(err)
	}
	hash := sha256.New()
	n, err := t.WriteTo(hash)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes, SHA-256 %x...\n", n, hash.Sum(nil)[:8])
	// Output: 4 bytes, SHA-256 dd8b10d263a3a65c...
}

// OpenFS opens a checkpoint in a zip archive, in an embed.FS or in any other file system.
func ExampleOpenFS() {
	f, err := safetensors.OpenFS(os.DirFS("testdata"), ".")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.Tensor("model.norm.weight"))
	// Output: F32 [32] <nil>
}

// Join opens several files as one File, if no index lists them: Open refuses a directory with
// several files that do not form a set. An adapter and its base can be joined in the same way.
func ExampleJoin() {
	names, err := filepath.Glob("testdata/tied/sharded/*.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	var files []*safetensors.File
	for _, name := range names {
		f, err := safetensors.Open(name)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, f)
	}
	f, err := safetensors.Join(files...)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close() // closes all of the files
	fmt.Println(f)
	// Output: 5 tensors, 256 bytes
}

// A conversion shows its progress, and Ctrl-C cancels it. WriteFile then leaves no file behind.
func ExampleWatch() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tensors := maps.Collect(f.Tensors())
	var done, total atomic.Int64
	for _, t := range tensors {
		total.Add(t.Size())
	}
	tensors = safetensors.Watch(tensors, func(n int) error { // several goroutines may call it
		done.Add(int64(n))
		return ctx.Err()
	})
	bar := func() { // a program calls it regularly, for example at each tick of a time.Ticker
		n := int(40 * done.Load() / total.Load())
		fmt.Printf("[%s%s] %d of %d bytes\n", strings.Repeat("=", n), strings.Repeat(" ", 40-n), done.Load(), total.Load())
	}

	for name, t := range tensors {
		if !t.DType().IsFloat() {
			continue
		}
		if tensors[name], err = t.Convert(safetensors.BF16); err != nil {
			log.Fatal(err)
		}
	}
	bar()
	name := filepath.Join(os.TempDir(), "watched.safetensors")
	if err := safetensors.WriteFile(name, tensors, f.Metadata()); errors.Is(err, context.Canceled) {
		fmt.Println("interrupted")
		return
	} else if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(name)
	bar()
	// Output:
	// [                                        ] 0 of 44160 bytes
	// [========================================] 44160 of 44160 bytes
}

// Reshape and Transpose bring the rows of a query projection into the order of llama.cpp, which
// rotates adjacent pairs. The rows are reordered when the tensor is read.
func ExampleTensor_Reshape() {
	const heads, rows = 2, 8
	q, err := safetensors.NewTensor(safetensors.F32, []int{rows, 1}, []float32{0, 1, 2, 3, 4, 5, 6, 7})
	if err != nil {
		log.Fatal(err)
	}
	halves, err := q.Reshape(heads, 2, rows/heads/2, 1)
	if err != nil {
		log.Fatal(err)
	}
	pairs, err := halves.Transpose(0, 2, 1, 3)
	if err != nil {
		log.Fatal(err)
	}
	permuted, err := pairs.Reshape(rows, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, permuted))
	// Output: [0 2 1 3 4 6 5 7] <nil>
}

// In tensor parallelism, rank 1 of 2 takes its half of the columns.
func ExampleTensor_Part() {
	t, err := safetensors.NewTensor(safetensors.U8, []int{2, 4}, []uint8{0, 1, 2, 3, 10, 11, 12, 13})
	if err != nil {
		log.Fatal(err)
	}
	part, err := t.Part(1, 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[uint8](nil, part))
	_, err = t.Part(1, 0, 3)
	fmt.Println(err)
	// Output:
	// [2 3 12 13] <nil>
	// safetensors: part 0 of 3 along dimension 1 of U8 [2,4]: 3 does not divide the size 4
}

// Concat joins the parts of several ranks into the whole tensor.
func ExampleConcat() {
	left, err := safetensors.NewTensor(safetensors.U8, []int{2, 1}, []uint8{0, 10})
	if err != nil {
		log.Fatal(err)
	}
	right, err := safetensors.NewTensor(safetensors.U8, []int{2, 2}, []uint8{1, 2, 11, 12})
	if err != nil {
		log.Fatal(err)
	}
	t, err := safetensors.Concat(1, left, right)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[uint8](nil, t))
	// Output: [0 1 2 10 11 12] <nil>
}

// Some files hold the 4-bit elements of MXFP4 blocks as U8, two in a byte.
func ExampleTensor_Bitcast() {
	blocks, err := safetensors.NewTensor(safetensors.U8, []int{1, 2}, []byte{0x21, 0xF7})
	if err != nil {
		log.Fatal(err)
	}
	elements, err := blocks.Bitcast(safetensors.F4)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(elements)
	fmt.Println(safetensors.Append[float32](nil, elements))
	// Output:
	// F4 [1,4]
	// [0.5 1 6 -6] <nil>
}

// Equal finds the tensors in which two checkpoints differ.
func ExampleEqual() {
	a, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer a.Close()
	b := maps.Collect(a.Tensors()) // stands for another checkpoint: here, the same one with two changes
	delete(b, "lm_head.weight")
	if b["model.norm.weight"], err = safetensors.NewTensor(safetensors.F32, []int{32}, make([]float32, 32)); err != nil {
		log.Fatal(err)
	}

	for name, t := range a.Tensors() {
		other, ok := b[name]
		if !ok {
			fmt.Println(name, "is only in a")
			continue
		}
		equal, err := safetensors.Equal(t, other)
		if err != nil {
			log.Fatal(err)
		}
		if !equal {
			fmt.Println(name, "differs")
		}
	}
	// Output:
	// model.norm.weight differs
	// lm_head.weight is only in a
}

// ParseRanges reads a slice that a user has written, in a request or on a command line.
func ExampleParseRanges() {
	t, err := safetensors.NewTensor(safetensors.I32, []int{4, 3}, []int32{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32})
	if err != nil {
		log.Fatal(err)
	}
	ranges, err := safetensors.ParseRanges("2:, -1")
	if err != nil {
		log.Fatal(err)
	}
	column, err := t.Slice(ranges...)
	if err != nil {
		log.Fatal(err)
	}
	elements, err := safetensors.Append[int32](nil, column)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ranges, elements)
	// Output: [2: -1] [22 32]
}
