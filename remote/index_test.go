package remote

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

const indexFile = "model.safetensors.index.json"

// addModel serves a model of several shards at a path. Each shard has a tensor of
// 1000 F32 and one of 10 I8. addModel returns the values of both in the last.
func addModel(s *server, path string, shards int) (weight []float32, bias []int8) {
	var index []string
	for i := range shards {
		weight, bias = make([]float32, 1000), make([]int8, 10)
		weight[0], bias[0] = float32(i), int8(i)
		w := must(safetensors.NewTensor(safetensors.F32, []int{10, 100}, weight))
		b := must(safetensors.NewTensor(safetensors.I8, []int{10}, bias))
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		wName, bName := fmt.Sprintf("layer.%d.weight", i), fmt.Sprintf("layer.%d.bias", i)
		padding := map[string]string{"": strings.Repeat(" ", firstRead)} // each header needs two requests
		s.add(path+name, encode(map[string]safetensors.Tensor{wName: w, bName: b}, padding))
		index = append(index, fmt.Sprintf("%q:%q,%q:%q", wName, name, bName, name))
	}
	s.add(path+indexFile, []byte(`{"metadata":{},"weight_map":{`+strings.Join(index, ",")+`}}`))
	return weight, bias
}

// TestOpenIndexByURL opens the shards next to an index, which comes at the third try.
func TestOpenIndexByURL(t *testing.T) {
	s := newServer(t)
	addModel(s, "/some/folder/", 3)
	index := s.files["/some/folder/"+indexFile]
	client, clock := newClient()
	s.fault = first(2, func(w http.ResponseWriter, r *http.Request) {
		if len(s.ranges()) == 1 {
			w.WriteHeader(503)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(index)))
		w.Write(index[:10])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	f := must(client.Open(t.Context(), s.URL+"/some/folder/"+indexFile+"?download=true"))
	require.Equal(t, int64(30), f.ParameterCount()[safetensors.I8])
	require.Len(t, s.ranges(), 3+2*3)
	require.Len(t, clock.pauses, 2)
}

// TestOpenIndexOfVariant: the index of a variant is one, and no other JSON file is.
func TestOpenIndexOfVariant(t *testing.T) {
	s := newServer(t)
	addModel(s, "/f/", 2)
	for name, tensors := range map[string]int{"model.safetensors.index.fp16.json": 4, "model.fp16.safetensors.index.json": 4, "config.json": 0} {
		s.add("/f/"+name, s.files["/f/"+indexFile])
		f, err := Open(t.Context(), s.URL+"/f/"+name)
		if tensors == 0 {
			require.Error(t, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tensors, f.Len(), name)
	}
}

func TestOpenIndexConcurrently(t *testing.T) {
	s := newServer(t)
	addModel(s, "/f/", 2*inFlight)
	waiting := make(chan struct{}, 2*inFlight)
	full := make(chan struct{})
	s.fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		if n < 1 || n >= 1+inFlight {
			return false
		}
		if waiting <- struct{}{}; len(waiting) == inFlight {
			close(full)
		}
		<-full // which only the last of them closes
		return false
	}
	client, _ := newClient()
	must(client.Open(t.Context(), s.URL+"/f/"+indexFile))
}
