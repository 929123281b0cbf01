package remote

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestSlicesAreFetchedAsMergedRanges counts requests and bytes of slices of a
// [2048, 4096] tensor of BF16: rows of 8 KiB, 16 MiB in all. Reads that do not fill the
// caller's memory directly are made in large blocks.
func TestSlicesAreFetchedAsMergedRanges(t *testing.T) {
	const rows, columns = 2048, 4096
	values := make([]uint16, rows*columns)
	for i := range values {
		values[i] = uint16(i * 31)
	}
	whole := must(safetensors.NewTensor(safetensors.BF16, []int{rows, columns}, values))
	s := newServer(t)
	client, _ := newClient()
	tensor := openTensor(t, client, s.add("/m", encode(map[string]safetensors.Tensor{"t": whole}, nil)))
	for _, c := range []struct {
		name     string
		ranges   []safetensors.Range
		requests int
		bytes    int64 // at most
	}{
		{"all", nil, 3, 16 << 20},
		{"rows", []safetensors.Range{safetensors.Span(100, 356)}, 1, 2 << 20},
		{"one row", []safetensors.Range{safetensors.At(7)}, 1, 8 << 10},
		{"a column shard of eight", []safetensors.Range{safetensors.All(), safetensors.Span(3*512, 4*512)}, 2, 16 << 20},
		{"one column", []safetensors.Range{safetensors.All(), safetensors.At(5)}, 2, 16 << 20},
		{"rows far apart", []safetensors.Range{safetensors.All().By(64)}, 32, 32 * 8 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			slice := must(tensor.Slice(c.ranges...))
			want := must(safetensors.Append[uint16](nil, must(whole.Slice(c.ranges...))))
			s.reset(nil)
			require.True(t, slices.Equal(want, must(safetensors.Append[uint16](nil, slice))))
			require.LessOrEqual(t, len(s.ranges()), c.requests)
			require.LessOrEqual(t, s.sent, c.bytes)
		})
	}
	s.reset(nil)
	must(safetensors.Append[float32](nil, tensor))
	require.LessOrEqual(t, len(s.ranges()), 8, "2 MiB of BF16 a request")
	require.Equal(t, int64(2*rows*columns), s.sent)
	s.reset(nil)
	must(tensor.WriteTo(io.Discard))
	require.LessOrEqual(t, len(s.ranges()), 2, "8 MiB of BF16 a request")
	require.Equal(t, int64(2*rows*columns), s.sent)
}

// TestManyTensorsAreFetchedAsMergedRanges copies a model of 500 small tensors
// and a large one.
func TestManyTensorsAreFetchedAsMergedRanges(t *testing.T) {
	const small, large = 500, 20 << 20
	tensors := map[string]safetensors.Tensor{}
	add := func(name string, size int) {
		tensors[name] = must(safetensors.NewTensor(safetensors.U8, []int{size}, pattern(size)))
	}
	for i := range small {
		add(fmt.Sprintf("norm.%03d", i), 4096)
	}
	add("weight", large)
	file := encode(tensors, nil)
	s := newServer(t)
	client, _ := newClient()
	f := must(client.Open(t.Context(), s.add("/m", file)))
	defer f.Close()
	s.reset(nil)
	var copied bytes.Buffer
	require.NoError(t, safetensors.Write(&copied, maps.Collect(f.Tensors()), nil))
	require.True(t, bytes.Equal(file, copied.Bytes()))
	require.LessOrEqual(t, len(s.ranges()), 8)
	require.Equal(t, int64(small*4096+large), s.sent)
}

// TestOpenIndexConcurrently: an index has as many shards opened at once as there may be
// requests.
func TestOpenIndexConcurrently(t *testing.T) {
	s := newServer(t)
	waiting := make(chan struct{}, inFlight)
	full := make(chan struct{})
	s.fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n < 1 || n > inFlight {
			return false
		}
		if waiting <- struct{}{}; len(waiting) == inFlight {
			close(full)
		}
		<-full // which only the last of them closes
		return false
	}
	client, _ := newClient()
	require.ErrorIs(t, errorOf(client.Open(t.Context(), s.add("/f/"+indexFile, manyShards()))), fs.ErrNotExist)
}
