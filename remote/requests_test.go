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

// TestReadsAreMerged counts requests and bytes of reads of a model of 500 small tensors and one of
// BF16, [2048, 4096]: rows of 8 KiB, 16 MiB in all. Reads that do not fill the caller's memory
// directly are made in large blocks.
func TestReadsAreMerged(t *testing.T) {
	const rows, columns, small, whole = 2048, 4096, 500, 16 << 20
	values := make([]uint16, rows*columns)
	for i := range values {
		values[i] = uint16(i * 31)
	}
	local := must(safetensors.NewTensor(safetensors.BF16, []int{rows, columns}, values))
	tensors := map[string]safetensors.Tensor{"t": local}
	for i := range small {
		tensors[fmt.Sprintf("norm.%03d", i)] = must(safetensors.NewTensor(safetensors.U8, []int{4096}, pattern(4096)))
	}
	s := newServer(t)
	client, _ := newClient()
	file := encode(tensors, nil)
	f := must(client.Open(t.Context(), s.add("/m", file)))
	defer f.Close()
	tensor := must(f.Tensor("t"))
	slice := func(ranges ...safetensors.Range) func() {
		want := must(safetensors.Append[uint16](nil, must(local.Slice(ranges...))))
		return func() {
			require.True(t, slices.Equal(want, must(safetensors.Append[uint16](nil, must(tensor.Slice(ranges...))))))
		}
	}
	for _, c := range []struct {
		name     string
		read     func()
		requests int
		bytes    int64 // at most
	}{
		{"all", slice(), 3, whole},
		{"rows", slice(safetensors.Span(100, 356)), 1, 2 << 20},
		{"one row", slice(safetensors.At(7)), 1, 8 << 10},
		{"a column shard of eight", slice(safetensors.All(), safetensors.Span(3*512, 4*512)), 2, whole},
		{"one column", slice(safetensors.All(), safetensors.At(5)), 2, whole},
		{"rows far apart", slice(safetensors.All().By(64)), 32, 32 * 8 << 10},
		{"as float32, 2 MiB a request", func() { must(safetensors.Append[float32](nil, tensor)) }, 8, whole},
		{"written, 8 MiB a request", func() { must(tensor.WriteTo(io.Discard)) }, 2, whole},
		{"the model", func() {
			var copied bytes.Buffer
			require.NoError(t, safetensors.Write(&copied, maps.Collect(f.Tensors()), nil))
			require.True(t, bytes.Equal(file, copied.Bytes()))
		}, 8, whole + small*4096},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.reset(nil)
			c.read()
			require.LessOrEqual(t, len(s.ranges()), c.requests)
			require.LessOrEqual(t, s.sent, c.bytes)
		})
	}
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
