package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
)

func ExampleNewTensor() {
	weights := []float32{1, 2, 3, 4, 5, 6}
	fmt.Println(safetensors.NewTensor(safetensors.F32, []int{2, 3}, weights))

	// If a dtype has no Go type, pass its elements as raw bits, or as bytes.
	fmt.Println(safetensors.NewTensor(safetensors.BF16, nil, []uint16{0x3F80}))
	_, err := safetensors.NewTensor(safetensors.F4, []int{5}, []byte{0x21, 0x43, 0x05})
	fmt.Println(err)
	// Output:
	// F32 [2,3] <nil>
	// BF16 [] <nil>
	// safetensors: F4 [5] has 20 bits, which do not fill whole bytes
}

// A model is scaled and rounded to half its size. Only a few results are in memory at any time.
func ExampleNewTensorFunc() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tensors := make(map[string]safetensors.Tensor)
	for name, t := range f.Tensors() {
		if t.DType() != safetensors.BF16 {
			continue
		}
		tensors[name], err = safetensors.NewTensorFunc(safetensors.F8_E4M3, t.Shape(), func(dst []float32) error {
			_, err := safetensors.Append(dst[:0], t) // does not allocate: dst has room for all elements
			for i := range dst {
				dst[i] *= 64
			}
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	var file bytes.Buffer // a program would use WriteFile
	if err := safetensors.Write(&file, tensors, map[string]string{"scale": "64"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Parse(file.Bytes()))
	// Output: 15 tensors, 19456 bytes <nil>
}

// One computation yields two tensors, values and a scale. The two funcs share the small result:
// the func that runs first computes it.
func ExampleNewTensorFunc_scales() {
	weights, err := safetensors.NewTensor(safetensors.F32, []int{4}, []float32{1, -2, 3, 896})
	if err != nil {
		log.Fatal(err)
	}
	scale := sync.OnceValues(func() (float32, error) {
		largest := float32(0)
		w, err := safetensors.Append[float32](nil, weights)
		for _, x := range w {
			largest = max(largest, x, -x)
		}
		return largest / 448, err
	})
	values, err := safetensors.NewTensorFunc(safetensors.F8_E4M3, weights.Shape(), func(dst []float32) error {
		s, err := scale()
		if err != nil {
			return err
		}
		_, err = safetensors.Append(dst[:0], weights)
		for i := range dst {
			dst[i] /= s
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	scales, err := safetensors.NewTensorFunc(safetensors.F32, nil, func(dst []float32) (err error) {
		dst[0], err = scale()
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// A program would now write both tensors with WriteFile.
	fmt.Println(safetensors.Append[float32](nil, values))
	fmt.Println(safetensors.Append[float32](nil, scales))
	// Output:
	// [0.5 -1 1.5 448] <nil>
	// [2] <nil>
}

// Some frameworks lend the memory of a variable only during a callback. Copy the elements in that
// callback.
func ExampleNewTensorFunc_borrowed() {
	variable := []float32{1, 2, 3} // stands for a variable in the memory of a device
	lend := func(use func([]float32)) error { use(variable); return nil }

	t, err := safetensors.NewTensorFunc(safetensors.F32, []int{3}, func(dst []float32) error {
		return lend(func(data []float32) { copy(dst, data) })
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, t))
	// Output: [1 2 3] <nil>
}

// A LoRA adapter (Hu et al., arXiv:2106.09685) is merged into a weight: W + (alpha/r)·B·A. The
// product is computed when the tensor is written, so that merging a whole model takes the memory of
// a few weights only. A real program calls BLAS instead of the loops.
func ExampleNewTensorFunc_lora() {
	matrix := func(rows, columns int, values ...float32) safetensors.Tensor {
		t, err := safetensors.NewTensor(safetensors.F32, []int{rows, columns}, values)
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	weight := matrix(2, 3, 1, 2, 3, 4, 5, 6)
	loraA, loraB := matrix(1, 3, 1, 0, -1), matrix(2, 1, 0.5, 2)
	const alpha, r, in = 2.0, 1, 3

	merged, err := safetensors.NewTensorFunc(safetensors.BF16, weight.Shape(), func(w []float32) error {
		_, errW := safetensors.Append(w[:0], weight) // does not allocate: w has room for all elements
		a, errA := safetensors.Append[float32](nil, loraA)
		b, errB := safetensors.Append[float32](nil, loraB)
		if err := errors.Join(errW, errA, errB); err != nil {
			return err
		}
		for i := range w {
			for k := range r {
				w[i] += alpha / r * b[i/in*r+k] * a[k*in+i%in]
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer // a program would use WriteShards
	if err := safetensors.Write(&file, map[string]safetensors.Tensor{"q_proj.weight": merged}, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, merged))
	// Output: [2 2 2 8 5 2] <nil>
}

// FileOf makes a File from a map of tensors, for code that takes a File, or for Join.
func ExampleFileOf() {
	base, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	tensors := maps.Collect(base.Tensors())
	for name, t := range tensors {
		if t.DType() == safetensors.BF16 {
			if tensors[name], err = t.Convert(safetensors.F16); err != nil {
				log.Fatal(err)
			}
		}
	}
	f, err := safetensors.FileOf(tensors, base.Metadata(), base.Close)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close() // closes base
	fmt.Println(f.Len(), f.ParameterCount())
	// Output: 22 map[F16:21504 F32:160 I64:64]
}

// The elements in a raw file, such as the output of another program, become a tensor.
func ExampleNewTensorAt() {
	raw := strings.NewReader("\x00\x00\x80\x3f\x00\x00\x00\x40") // a program may pass an *os.File
	t, err := safetensors.NewTensorAt(safetensors.F32, []int{2}, raw)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, t))
	// Output: [1 2] <nil>
}

func ExampleWrite() {
	bias, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{0.5, -0.5})
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer // any io.Writer will do: a connection, a pipe, a compressor
	err = safetensors.Write(&b, map[string]safetensors.Tensor{"bias": bias}, map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", b.Bytes()[8:b.Len()-8]) // the header lies between its length and the data
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

// A Writer takes data as it is computed, so that a tensor may be larger than memory.
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
	if err := w.Close(); err != nil { // returns an error if data is missing
		log.Fatal(err)
	}

	f, err := safetensors.Parse(b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Elements[uint16](f, "even"))
	fmt.Println(safetensors.Elements[uint16](f, "odd"))
	// Output:
	// [0 4 16] <nil>
	// [1 9 25] <nil>
}

// Create writes a file in pieces, as they are computed or received. Close checks that the file is
// complete, and gives it its name.
func ExampleCreate() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "model.safetensors")
	w, err := safetensors.Create(name, &safetensors.Header{
		Tensors: []safetensors.TensorInfo{{Name: "weights", DType: safetensors.U8, Shape: []int{4, 1000}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close() // removes the temporary file if there was an error
	out, err := w.Tensor("weights")
	if err != nil {
		log.Fatal(err)
	}
	for range 4 { // a program would write some MiB at a time
		if _, err := out.Write(make([]byte, 1000)); err != nil {
			log.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Load(name))
	// Output: 1 tensor, 4000 bytes <nil>
}

// An upload needs the whole file as an io.Reader, and the length of the file.
func ExampleHeader_AppendBinary() {
	bias, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{0.5, -0.5})
	if err != nil {
		log.Fatal(err)
	}
	h := safetensors.Header{Tensors: []safetensors.TensorInfo{{Name: "bias", DType: bias.DType(), Shape: bias.Shape()}}}
	start, err := h.AppendBinary(nil)
	if err != nil {
		log.Fatal(err)
	}
	length := int64(len(start)) + bias.Size()
	body := io.MultiReader(bytes.NewReader(start), io.NewSectionReader(bias, 0, bias.Size()))
	n, err := io.Copy(io.Discard, body)
	fmt.Println(length, n, err)
	// Output: 80 80 <nil>
}

func ExampleWriteShards() {
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := safetensors.WriteShards(dir, maps.Collect(f.Tensors()), f.Metadata(), 20_000); err != nil {
		log.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range names {
		fmt.Println(filepath.Base(name))
	}
	fmt.Println(safetensors.Load(dir)) // opens all shards as one File
	// Output:
	// model-00001-of-00003.safetensors
	// model-00002-of-00003.safetensors
	// model-00003-of-00003.safetensors
	// model.safetensors.index.json
	// 22 tensors, 44160 bytes <nil>
}

// A checkpoint in shards is uploaded to an object store, here a map. Split assigns the tensors to
// shards, and Write uploads each one under the name that diffusers gives it. The index is made from
// the headers in the store, and is uploaded last.
func ExampleNewIndex() {
	store := make(map[string][]byte)
	f, err := safetensors.Open("testdata/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	shards := safetensors.Split(maps.Collect(f.Tensors()), 20_000)
	for name, tensors := range shards {
		var object bytes.Buffer
		if err := safetensors.Write(&object, tensors, f.Metadata()); err != nil {
			log.Fatal(err)
		}
		store[strings.Replace(name, "model", "diffusion_pytorch_model", 1)] = object.Bytes()
	}
	index, err := safetensors.NewIndex(func(yield func(string, *safetensors.Header) bool) {
		for name, object := range store {
			h, err := safetensors.ReadHeader(bytes.NewReader(object))
			if err != nil {
				log.Fatal(err)
			}
			if !yield(name, h) {
				return
			}
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	text, err := index.AppendBinary(nil)
	if err != nil {
		log.Fatal(err)
	}
	store["diffusion_pytorch_model.safetensors.index.json"] = text
	for _, name := range slices.Sorted(maps.Keys(store)) {
		fmt.Println(name)
	}
	// Output:
	// diffusion_pytorch_model-00001-of-00003.safetensors
	// diffusion_pytorch_model-00002-of-00003.safetensors
	// diffusion_pytorch_model-00003-of-00003.safetensors
	// diffusion_pytorch_model.safetensors.index.json
}

// OpenShards opens the shards of an index from any place, here a directory. Its callback opens one
// shard by its name.
func ExampleOpenShards() {
	const store = "testdata/tied/sharded/"
	index, err := os.Open(store + "model.safetensors.index.json")
	if err != nil {
		log.Fatal(err)
	}
	defer index.Close()
	f, err := safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) {
		return safetensors.Open(store + shard) // elsewhere, NewFile opens an io.ReaderAt
	})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f)
	// Output: 5 tensors, 256 bytes
}

// A program fetches each shard when one of its tensors is first needed.
func ExampleReadIndex() {
	const dir = "testdata/tied/sharded/"
	r, err := os.Open(dir + "model.safetensors.index.json")
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	index, err := safetensors.ReadIndex(r)
	if err != nil {
		log.Fatal(err)
	}
	files := make(map[string]*safetensors.File)
	tensor := func(name string) (safetensors.Tensor, error) {
		shard, ok := index.Shards[name]
		if !ok {
			return safetensors.Tensor{}, fs.ErrNotExist
		}
		if files[shard] == nil {
			fmt.Println("fetching", shard)
			f, err := safetensors.Load(dir + shard) // a program may download it first
			if err != nil {
				return safetensors.Tensor{}, err
			}
			files[shard] = f
		}
		return files[shard].Tensor(name)
	}
	fmt.Println(tensor("layers.1.bias"))
	fmt.Println(tensor("layers.0.bias"))
	fmt.Println(tensor("layers.0.weight"))
	// Output:
	// fetching model-00003-of-00003.safetensors
	// F32 [4] <nil>
	// fetching model-00002-of-00003.safetensors
	// F32 [4] <nil>
	// F32 [4,4] <nil>
}

// The head of a language model is often its embedding: two names refer to the same data.
func ExampleTie() {
	weights, err := safetensors.NewTensor(safetensors.F32, []int{2, 2}, []float32{1, 2, 3, 4})
	if err != nil {
		log.Fatal(err)
	}
	tensors, metadata := safetensors.Tie(map[string]safetensors.Tensor{"embed.weight": weights, "lm_head.weight": weights}, map[string]string{"format": "pt"})
	fmt.Println(slices.Sorted(maps.Keys(tensors)), metadata)
	all, metadata := safetensors.Untie(tensors, metadata)
	fmt.Println(slices.Sorted(maps.Keys(all)), metadata)
	// Output:
	// [embed.weight] map[format:pt lm_head.weight:embed.weight]
	// [embed.weight lm_head.weight] map[format:pt]
}

// Tensors of a file with tied ones are renamed. Its metadata records lm_head.weight as another name of
// embed.weight.
func ExampleUntie() {
	embed, err := safetensors.NewTensor(safetensors.F32, []int{2, 2}, []float32{1, 2, 3, 4})
	if err != nil {
		log.Fatal(err)
	}
	tensors, metadata := safetensors.Untie(map[string]safetensors.Tensor{"embed.weight": embed}, map[string]string{"lm_head.weight": "embed.weight"})
	renamed := make(map[string]safetensors.Tensor)
	for name, t := range tensors {
		renamed["model."+name] = t
	}
	renamed, metadata = safetensors.Tie(renamed, metadata)
	fmt.Println(renamed, metadata)
	// Output: map[model.embed.weight:F32 [2,2]] map[model.lm_head.weight:model.embed.weight]
}
