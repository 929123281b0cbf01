package remote

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

const indexFile = "model.safetensors.index.json"

// addModel serves a model of several shards at a path, each of 1000 F32 and 10 I8. Its headers
// need two requests.
func addModel(t *testing.T, s *server, path string, shards int) {
	dir, tensors := t.TempDir(), make(map[string]safetensors.Tensor)
	for i := range shards {
		tensors[fmt.Sprintf("layer.%02d.weight", i)] = must(safetensors.NewTensor(safetensors.F32, []int{1000}, make([]float32, 1000)))
		tensors[fmt.Sprintf("layer.%02d.bias", i)] = must(safetensors.NewTensor(safetensors.I8, []int{10}, make([]int8, 10)))
	}
	padding := map[string]string{"": strings.Repeat(" ", firstRead)}
	require.NoError(t, safetensors.WriteShards(dir, tensors, padding, 4010))
	for _, file := range must(os.ReadDir(dir)) {
		s.add(path+file.Name(), must(os.ReadFile(filepath.Join(dir, file.Name()))))
	}
}

// TestOpenIndexByURL opens the shards next to an index, which comes at the third try.
func TestOpenIndexByURL(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/some/folder/", 3)
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
	addModel(t, s, "/f/", 2)
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
	addModel(t, s, "/f/", 2*inFlight)
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
