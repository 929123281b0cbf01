package safetensors

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// llama70B returns the tensors of a model of that architecture with so many
// layers: 80 make the 723 tensors of the real one.
func llama70B(layers int) []TensorInfo {
	tensors := []TensorInfo{
		{Name: "lm_head.weight", DType: BF16, Shape: []int{32000, 8192}},
		{Name: "model.embed_tokens.weight", DType: BF16, Shape: []int{32000, 8192}},
	}
	for i := range layers {
		for _, p := range []struct {
			name  string
			shape []int
		}{
			{"input_layernorm", []int{8192}},
			{"mlp.down_proj", []int{8192, 28672}},
			{"mlp.gate_proj", []int{28672, 8192}},
			{"mlp.up_proj", []int{28672, 8192}},
			{"post_attention_layernorm", []int{8192}},
			{"self_attn.k_proj", []int{1024, 8192}},
			{"self_attn.o_proj", []int{8192, 8192}},
			{"self_attn.q_proj", []int{8192, 8192}},
			{"self_attn.v_proj", []int{1024, 8192}},
		} {
			tensors = append(tensors, TensorInfo{Name: fmt.Sprintf("model.layers.%d.%s.weight", i, p.name), DType: BF16, Shape: p.shape})
		}
	}
	return append(tensors, TensorInfo{Name: "model.norm.weight", DType: BF16, Shape: []int{8192}})
}

// headerText returns the header of a file with those tensors, and the size of
// its data buffer.
func headerText(t testing.TB, tensors []TensorInfo) ([]byte, int64) {
	text, err := encodeHeader(tensors, map[string]string{"format": "pt"})
	require.NoError(t, err)
	return text[prefixSize:], tensors[len(tensors)-1].DataOffsets[1]
}

// BenchmarkParseHeader parses headers of one dtype and of dtypes in turn, as
// those of quantised models, and shows what the fast path saves.
func BenchmarkParseHeader(b *testing.B) {
	quantised := llama70B(80)
	for i := range quantised {
		quantised[i].DType = []DType{F8_E4M3, F32}[i%2]
	}
	for _, h := range []struct {
		name    string
		tensors []TensorInfo
		slow    bool
	}{
		{"723", llama70B(80), false},
		{"723/general", llama70B(80), true},
		{"723/quantised", quantised, false},
		{"91992", llama70B(10221), false},
	} {
		text, size := headerText(b, h.tensors)
		b.Run(h.name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			own := make([]byte, len(text))
			for b.Loop() {
				copy(own, text)
				p := newParser(own)
				p.slow = h.slow
				_, err := p.parse(size)
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkEncodeHeader(b *testing.B) {
	tensors := llama70B(10221)
	b.ReportAllocs()
	for b.Loop() {
		_, err := encodeHeader(tensors, nil)
		require.NoError(b, err)
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, layers := range []int{80, 10221} {
		text, size := headerText(b, llama70B(layers))
		t, err := parseHeader(text, size)
		require.NoError(b, err)
		f := newFile(t, &source{})
		names := make([]string, len(t.entries))
		goMap := make(map[string]int)
		for i := range names {
			names[i] = string([]byte(t.name(i * 7919 % len(names))))
			goMap[names[i]] = i
		}
		b.Run(fmt.Sprintf("%d", len(names)), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				_, err := f.Tensor(names[i%len(names)])
				if err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d/map", len(names)), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, ok := goMap[names[i%len(names)]]; !ok {
					b.Fatal("lost")
				}
			}
		})
	}
}

// BenchmarkAppend shows what it saves not to clear memory before it is filled,
// in a heap of usual size, where it has been used before.
func BenchmarkAppend(b *testing.B) {
	heap := make([]byte, 64<<20)
	defer runtime.KeepAlive(heap)
	for _, n := range []int{1 << 20, 16 << 20} {
		data := make([]byte, n)
		t, err := NewTensor(U8, []int{n}, data)
		require.NoError(b, err)
		b.Run(fmt.Sprintf("%dMiB", n>>20), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				_, err := Append[byte](nil, t)
				require.NoError(b, err)
			}
		})
		b.Run(fmt.Sprintf("%dMiB/make", n>>20), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				_, err := Append(make([]byte, n)[:0], t)
				require.NoError(b, err)
			}
		})
	}
}
