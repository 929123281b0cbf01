package safetensors_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"

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
	fmt.Println(t.DType(), t.Shape(), t.Len())
	fmt.Println(f.Metadata()["format"])
	// Output:
	// BF16 [64 32] 2048
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
	t, err := f.Tensor("model.norm.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.DType(), t.Shape())
	// Output: F32 [32]
}

// NewFile takes any io.ReaderAt: an os.File, a mapping, an object in a store. It
// reads only the header; tensors are read when asked for.
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
	t, err := f.Tensor("model.position_ids")
	if err != nil {
		log.Fatal(err)
	}
	ids, err := safetensors.Append[int64](nil, t)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ids[:5])
	// Output: [0 1 2 3 4]
}

// A header has the place of each tensor and can be read from any stream.
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
		fmt.Println(t.Name, t.DType, t.Shape, t.DataOffsets)
	}
	// Output:
	// model.position_ids I64 [1 64] [0 512]
	// model.layers.0.input_layernorm.weight F32 [32] [512 640]
}

func ExampleFile_Tensor() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, err := f.Tensor("lm_head.weight")
	if errors.Is(err, fs.ErrNotExist) {
		t, err = f.Tensor("model.embed_tokens.weight") // tied to it, in many models
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

func ExampleFile_ParameterCount() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.ParameterCount())
	// Output: map[F16:2048 BF16:19456 F32:160 I64:64]
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
	defer f.Close() // after the last use of ids
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

// Append reuses the memory of its first argument. It converts BF16 to float32,
// which represents every value of BF16.
func ExampleAppend() {
	weights, err := safetensors.NewTensor(safetensors.BF16, []int{4}, []uint16{0x3F80, 0xBF00, 0x7F80, 0x4049})
	if err != nil {
		log.Fatal(err)
	}
	values := make([]float32, 0, 1024)
	values, err = safetensors.Append(values[:0], weights)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(values)
	// Output: [1 -0.5 +Inf 3.140625]
}

// Conversions that round must be requested with Convert. They are computed when
// the elements are read, here by Append.
func ExampleTensor_Convert() {
	t, err := safetensors.NewTensor(safetensors.F32, []int{3}, []float32{1, math.Pi, 1e6})
	if err != nil {
		log.Fatal(err)
	}
	half, err := t.Convert(safetensors.F16)
	if err != nil {
		log.Fatal(err)
	}
	values, err := safetensors.Append[float32](nil, half)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(half.DType(), values)
	// Output: F16 [1 3.140625 +Inf]
}

// The columns that rank 1 of 2 needs in tensor parallelism: [:, 2:4] in Python.
func ExampleTensor_Slice() {
	t, err := safetensors.NewTensor(safetensors.F32, []int{3, 4}, []float32{
		0, 1, 2, 3,
		10, 11, 12, 13,
		20, 21, 22, 23,
	})
	if err != nil {
		log.Fatal(err)
	}
	rank, ranks := 1, 2
	columns := t.Shape()[1] / ranks
	shard, err := t.Slice(safetensors.All(), safetensors.Span(rank*columns, (rank+1)*columns))
	if err != nil {
		log.Fatal(err)
	}
	values, err := safetensors.Append[float32](nil, shard)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(shard.Shape(), values)
	// Output: [3 2] [2 3 12 13 22 23]
}

// At drops a dimension, By leaves elements out: [-1, ::2] in Python.
func ExampleRange() {
	t, err := safetensors.NewTensor(safetensors.U8, []int{2, 5}, []uint8{0, 1, 2, 3, 4, 10, 11, 12, 13, 14})
	if err != nil {
		log.Fatal(err)
	}
	part, err := t.Slice(safetensors.At(-1), safetensors.All().By(2))
	if err != nil {
		log.Fatal(err)
	}
	values, err := safetensors.Append[uint8](nil, part)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(part.Shape(), values)
	// Output: [3] [10 12 14]
}

// The bytes of a tensor, row by row and little-endian on every machine.
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

func ExampleNewTensor() {
	weights := []float32{1, 2, 3, 4, 5, 6}
	t, err := safetensors.NewTensor(safetensors.F32, []int{2, 3}, weights)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.DType(), t.Shape())

	// A dtype without a Go type is given as raw bits, or as bytes.
	t, err = safetensors.NewTensor(safetensors.BF16, nil, []uint16{0x3F80})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.DType(), t.Shape())
	_, err = safetensors.NewTensor(safetensors.F4, []int{5}, []byte{0x21, 0x43, 0x05})
	fmt.Println(err)
	// Output:
	// F32 [2 3]
	// BF16 []
	// safetensors: F4 [5] has 20 bits, which do not fill whole bytes
}

func ExampleWrite() {
	bias, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{0.5, -0.5})
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer // or a connection, a pipe, a compressor
	err = safetensors.Write(&b, map[string]safetensors.Tensor{"bias": bias}, map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", b.Bytes()[8:b.Len()-8]) // the header, between its length and the data
	// Output: {"__metadata__":{"format":"pt"},"bias":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}
}

// A checkpoint is a map, so the functions of package maps change it. Data is read
// only when the new file is written.
func ExampleWriteFile() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tensors := maps.Collect(f.Tensors())

	// Leave out,
	maps.DeleteFunc(tensors, func(name string, _ safetensors.Tensor) bool {
		return !strings.HasPrefix(name, "model.layers.0.self_attn.")
	})
	// rename,
	for name, t := range maps.Clone(tensors) {
		delete(tensors, name)
		tensors[strings.TrimPrefix(name, "model.layers.0.")] = t
	}
	// convert,
	for name, t := range tensors {
		if tensors[name], err = t.Convert(safetensors.F16); err != nil {
			log.Fatal(err)
		}
	}
	// add; maps.Insert(tensors, other.Tensors()) adds another file.
	scale, err := safetensors.NewTensor(safetensors.F32, nil, []float32{0.125})
	if err != nil {
		log.Fatal(err)
	}
	tensors["scale"] = scale

	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "attention.safetensors")
	if err := safetensors.WriteFile(name, tensors, f.Metadata()); err != nil {
		log.Fatal(err)
	}

	g, err := safetensors.Load(name)
	if err != nil {
		log.Fatal(err)
	}
	for name, t := range g.Tensors() {
		fmt.Println(name, t.DType(), t.Shape())
	}
	// Output:
	// scale F32 []
	// self_attn.k_proj.weight F16 [32 32]
	// self_attn.o_proj.weight F16 [32 32]
	// self_attn.q_proj.weight F16 [32 32]
	// self_attn.v_proj.weight F16 [32 32]
}

// A Writer takes data as it is computed, so not all of it has to be in memory.
func ExampleNewWriter() {
	h := &safetensors.Header{
		Metadata: map[string]string{"source": "squares"},
		Tensors: []safetensors.TensorInfo{
			{Name: "even", DType: safetensors.U16, Shape: []int{3}},
			{Name: "odd", DType: safetensors.U16, Shape: []int{3}},
		},
	}
	var b bytes.Buffer
	w, err := safetensors.NewWriter(&b, h)
	if err != nil {
		log.Fatal(err)
	}
	for first, name := range []string{"even", "odd"} {
		data, err := w.Tensor(name)
		if err != nil {
			log.Fatal(err)
		}
		for i := first; i < 6; i += 2 {
			if err := binary.Write(data, binary.LittleEndian, uint16(i*i)); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil { // it knows whether anything is missing
		log.Fatal(err)
	}

	f, err := safetensors.Parse(b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	for name, t := range f.Tensors() {
		squares, err := safetensors.Append[uint16](nil, t)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, squares)
	}
	// Output:
	// even [0 4 16]
	// odd [1 9 25]
}
