package remote_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

// Rank 1 of 2 reads its rows of every tensor. Each read waits for an answer of the
// server, so many goroutines read at the same time: 48 of them were at least as fast as
// one plan that merges the reads of all tensors.
func ExampleOpen_rank() {
	server := serve(fstest.MapFS{"model.safetensors": file("embedding")})
	defer server.Close()
	f, err := remote.Open(context.Background(), server.URL+"/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	values := make(map[string][]float32)
	var mu sync.Mutex // guards values
	var wait sync.WaitGroup
	places := make(chan struct{}, 48)
	for name, t := range f.Tensors() {
		wait.Add(1)
		places <- struct{}{}
		go func() {
			defer wait.Done()
			defer func() { <-places }()
			rows, err := t.Part(0, 1, 2)
			if err != nil {
				log.Fatal(err)
			}
			read, err := safetensors.Append[float32](nil, rows)
			if err != nil {
				log.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			values[name] = read
		}()
	}
	wait.Wait()
	fmt.Println(values)
	// Output: map[embedding:[6 7 8 9 10 11]]
}
