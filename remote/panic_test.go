package remote

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// An endingTransport panics, or ends its goroutine, from some request on.
type endingTransport struct {
	left atomic.Int64
	end  func()
}

func (e *endingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if e.left.Add(-1) < 0 {
		e.end()
	}
	return http.DefaultTransport.RoundTrip(req)
}

// TestTransportThatEnds lets the transport panic or call runtime.Goexit in the
// middle of many reads: each of them ends, and Close returns.
func TestTransportThatEnds(t *testing.T) {
	s := newServer(t)
	tensors := map[string]safetensors.Tensor{}
	data := make([]byte, 3<<20)
	for _, name := range []string{"a", "b", "c", "d"} {
		tensors[name] = must(safetensors.NewTensor(safetensors.U8, []int{1 << 10, 3 << 10}, data))
	}
	s.add("/m", encode(tensors, nil))
	for _, end := range []func(){func() { panic("boom") }, runtime.Goexit} {
		transport := &endingTransport{end: end}
		transport.left.Store(2)
		client := &Client{HTTP: &http.Client{Transport: transport}}
		f := must(client.Open(t.Context(), s.URL+"/m"))
		var all sync.WaitGroup
		for i := range 20 {
			all.Add(1)
			go func() {
				defer all.Done()
				defer func() { recover() }()
				x, _ := f.Tensor([]string{"a", "b", "c", "d"}[i%4])
				if i%2 == 0 {
					x, _ = x.Slice(safetensors.All(), safetensors.Span(0, 16))
				}
				safetensors.Append[byte](nil, x)
			}()
		}
		all.Wait()
		require.NoError(t, f.Close())
	}
}
