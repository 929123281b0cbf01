package remote

import (
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

const indexFile = "model.safetensors.index.json"

// addModel serves a model of several shards at a path. Each shard has a tensor of
// 1000 F32 and one of 10 I8. addModel returns the values of both in the last.
func addModel(t testing.TB, s *server, path string, shards int) (weight []float32, bias []int8) {
	var index []string
	for i := range shards {
		weight, bias = make([]float32, 1000), make([]int8, 10)
		weight[0], bias[0] = float32(i), int8(i)
		w, err := safetensors.NewTensor(safetensors.F32, []int{10, 100}, weight)
		require.NoError(t, err)
		b, err := safetensors.NewTensor(safetensors.I8, []int{10}, bias)
		require.NoError(t, err)
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		wName, bName := fmt.Sprintf("layer.%d.weight", i), fmt.Sprintf("layer.%d.bias", i)
		s.add(path+name, encode(t, map[string]safetensors.Tensor{wName: w, bName: b}))
		index = append(index, fmt.Sprintf("%q:%q,%q:%q", wName, name, bName, name))
	}
	s.add(path+indexFile, []byte(`{"metadata":{},"weight_map":{`+strings.Join(index, ",")+`}}`))
	return weight, bias
}

func TestOpenIndexByURL(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/some/folder/", 3)
	client, _ := newClient(t)
	f, err := client.Open(t.Context(), s.URL+"/some/folder/"+indexFile+"?download=true")
	require.NoError(t, err)
	require.Equal(t, int64(30), f.ParameterCount()[safetensors.I8])
	require.Len(t, s.ranges(), 4)
}

func TestIndexIsRetried(t *testing.T) {
	s := newServer(t)
	addModel(t, s, "/f/", 1)
	index := s.files["/f/"+indexFile]
	client, clock := newClient(t)
	s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		switch n {
		case 0:
			w.WriteHeader(503)
		case 1:
			w.Header().Set("Content-Length", fmt.Sprint(len(index)))
			w.Write(index[:10])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			return false
		}
		return true
	}
	_, err := client.Open(t.Context(), s.URL+"/f/"+indexFile)
	require.NoError(t, err)
	require.Len(t, clock.pauses, 2)
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
	client, _ := newClient(t)
	_, err := client.Open(t.Context(), s.URL+"/f/"+indexFile)
	require.NoError(t, err)
}

func TestOpenIndexRefuses(t *testing.T) {
	index := func(shard string) []byte { return []byte(`{"weight_map":{"t":"` + shard + `"}}`) }
	var broken *safetensors.FormatError
	for _, c := range []struct {
		name  string
		index []byte
		is    error
		as    any
		text  string
	}{
		{name: "missing", is: fs.ErrNotExist, text: "status 404 Not Found, expected 200 OK"},
		{name: "not an index", index: []byte("<html>"), as: &broken, text: indexFile},
		{name: "shard above it", index: index("../other/model.safetensors"), as: &broken, text: "other/model"},
		{name: "shard at another host", index: index("//127.0.0.1/x.safetensors"), as: &broken, text: "127.0.0.1"},
		{name: "shard that is missing", index: index("x.safetensors"), is: fs.ErrNotExist, text: `shard "x.safetensors"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			if c.index != nil {
				s.add("/f/"+indexFile, c.index)
			}
			client, _ := newClient(t)
			_, err := client.Open(t.Context(), s.URL+"/f/"+indexFile+"?secret")
			require.ErrorContains(t, err, "safetensors: open "+s.URL+"/f/"+indexFile+": ")
			require.ErrorContains(t, err, c.text)
			require.NotContains(t, err.Error(), "secret")
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
			}
			for _, r := range s.requests {
				require.Regexp(t, "^/f/[^/]*$", r.URL.Path)
			}
		})
	}
}
