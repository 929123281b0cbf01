package quant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/quant"
)

// writeQuantised writes a model and its config to a temporary directory. The only weight is F8_E4M3
// [2,4] with the values 1 to 8. Its blocks of 2×2 have the scales 0.5 and 10.
func writeQuantised() (dir string) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	weight, _ := safetensors.NewTensor(safetensors.F8_E4M3, []int{2, 4}, []float32{1, 2, 3, 4, 5, 6, 7, 8})
	scale, _ := safetensors.NewTensor(safetensors.F32, []int{1, 2}, []float32{0.5, 10})
	err = safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), map[string]safetensors.Tensor{
		"proj.weight": weight, "proj.weight_scale_inv": scale,
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	config := []byte(`{"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2]}}`)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
		log.Fatal(err)
	}
	return dir
}

// A model whose FP8 values are 1 to 8, with a scale for each block of 2×2, is read as floats.
func ExampleOpen() {
	dir := writeQuantised()
	defer os.RemoveAll(dir)

	f, err := quant.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	values, err := safetensors.Elements[float32](f, "proj.weight", 2, 4)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(f.Len(), values)
	// Output: 1 [0.5 1 30 40 2.5 3 70 80]
}

// A quantised model becomes a plain one, in BF16, and so does its config.json. Elements are computed
// as they are written, so that the model may be larger than memory.
func ExamplePlainConfig() {
	dir := writeQuantised()
	defer os.RemoveAll(dir)
	plain := filepath.Join(dir, "plain")

	f, err := quant.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tensors := maps.Collect(f.Tensors())
	for name, t := range tensors {
		if !t.DType().IsFloat() { // integers, such as position_ids, stay unchanged
			continue
		}
		if tensors[name], err = t.Convert(safetensors.BF16); err != nil {
			log.Fatal(err)
		}
	}
	if err := safetensors.WriteShards(plain, tensors, f.Metadata(), 5<<30); err != nil {
		log.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		log.Fatal(err)
	}
	if config, err = quant.PlainConfig(config, safetensors.BF16); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plain, "config.json"), config, 0o666); err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensors["proj.weight"])
	fmt.Println(string(config))
	// Output:
	// BF16 [2,4]
	// {
	//   "torch_dtype": "bfloat16"
	// }
}

// Dequantize reads a quantised model on a hub: tensors and config of the same commit. Only the
// values and the scales of the weights that are read are fetched.
func ExampleDequantize_hub() {
	dir := writeQuantised()
	defer os.RemoveAll(dir)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
	}))
	defer server.Close()
	client := &hub.Client{Endpoint: server.URL} // the default is the Hugging Face Hub
	ctx := context.Background()
	const repo, commit = "owner/name", "0123456789abcdef0123456789abcdef01234567"

	config, err := client.ReadFile(ctx, repo, commit, "config.json")
	if err != nil {
		log.Fatal(err)
	}
	f, err := client.Open(ctx, repo, commit)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	plain, err := quant.Dequantize(maps.Collect(f.Tensors()), config)
	if err != nil {
		log.Fatal(err)
	}
	values, err := safetensors.Append[float32](nil, plain["proj.weight"])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(values)
	// Output: [0.5 1 30 40 2.5 3 70 80]
}

// A matrix becomes 4-bit integers, and the numbers that they represent become BF16 again.
func ExampleQuantize() {
	values := make([]float32, 128)
	for i := range values {
		values[i] = float32(i%16) - 7.5
	}
	weight, err := safetensors.NewTensor(safetensors.F32, []int{1, 128}, values)
	if err != nil {
		log.Fatal(err)
	}
	tensors, config, err := quant.Quantize(map[string]safetensors.Tensor{"up_proj.weight": weight}, quant.Recipe{Scheme: quant.Int4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tensors["up_proj.weight_packed"], json.Valid(config))
	layouts, err := quant.Layouts(tensors, config)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(layouts["up_proj.weight"])

	plain, err := quant.Dequantize(tensors, config)
	if err != nil {
		log.Fatal(err)
	}
	for name, t := range plain {
		half, err := t.Convert(safetensors.BF16)
		if err != nil {
			log.Fatal(err)
		}
		some, err := half.Slice(safetensors.All(), safetensors.Span(0, 5))
		if err != nil {
			log.Fatal(err)
		}
		first, err := safetensors.Append[float32](nil, some)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, half, first)
	}
	// Output:
	// I32 [1,16] true
	// compressed-tensors, 4 bits
	// up_proj.weight BF16 [1,128] [-8 -6 -6 -4 -4]
}

// The model in a directory is quantised, and written to another directory. The config.json of the
// result is that of the model, with the quantization_config that Quantize returns.
func ExampleQuantize_folder() {
	dir := writePlain()
	defer os.RemoveAll(dir)
	quantised := filepath.Join(dir, "quantised")

	f, err := safetensors.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tensors, quantization, err := quant.Quantize(maps.Collect(f.Tensors()), quant.Recipe{Scheme: quant.FP8Channel})
	if err != nil {
		log.Fatal(err)
	}
	if err := safetensors.WriteShards(quantised, tensors, f.Metadata(), 5<<30); err != nil {
		log.Fatal(err)
	}

	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		log.Fatal(err)
	}
	var merged map[string]json.RawMessage
	for _, object := range [][]byte{config, quantization} { // the second object adds its key to the first
		if err := json.Unmarshal(object, &merged); err != nil {
			log.Fatal(err)
		}
	}
	if config, err = json.MarshalIndent(merged, "", "  "); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(quantised, "config.json"), config, 0o666); err != nil {
		log.Fatal(err)
	}

	plain, err := quant.Open(quantised)
	if err != nil {
		log.Fatal(err)
	}
	defer plain.Close()
	fmt.Println(slices.Sorted(maps.Keys(merged)))
	fmt.Println(safetensors.Elements[float32](plain, "up_proj.weight", 1, 4))
	// Output:
	// [dtype model_type quantization_config]
	// [7 28 224 448] <nil>
}

// writePlain writes a model and its config to a temporary directory. The only weight is BF16 [1,4].
func writePlain() (dir string) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	weight, _ := safetensors.NewTensor(safetensors.BF16, []int{1, 4}, []float32{7, 28, 224, 448})
	err = safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), map[string]safetensors.Tensor{"up_proj.weight": weight}, nil)
	if err != nil {
		log.Fatal(err)
	}
	config := []byte(`{"model_type": "llama", "dtype": "bfloat16"}`)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
		log.Fatal(err)
	}
	return dir
}
