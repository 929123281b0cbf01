// Serve serves the models in a directory over HTTP: their tensors, and slices of them. It loads
// a model again when somebody replaces it.
//
//	cd examples/serve && go test .
//
// Each subdirectory is a model, which package checkpoint opens, and so is each .safetensors file:
//
//	serve -listen localhost:8080 models
//	curl localhost:8080/models                                             # the names of the models
//	curl localhost:8080/models/llama                                       # the tensors and the metadata of one
//	curl 'localhost:8080/models/llama/lm_head.weight?slice=0:4,::2&dtype=F32' >elements
//	curl -r 0-1023 localhost:8080/models/llama/lm_head.weight >first
//	curl localhost:8080/debug/vars                                         # counters
//
// The elements are sent row by row and little-endian. The header X-Tensor contains their dtype and
// shape. The parameter slice selects elements in the syntax that Python uses in brackets, and dtype
// converts them. Names are escaped as in every URL: a slash in the name of a model, such as a
// component of a pipeline, is %2F. Everybody who can reach the address may read all models.
package main

import (
	"context"
	"errors"
	"expvar"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", "localhost:8080", "the `address` to listen on")
	poll := flags.Duration("poll", time.Second, "the `interval` at which to look for replaced models")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: serve [-listen ADDRESS] [-poll INTERVAL] DIRECTORY")
		flags.PrintDefaults()
	}
	flags.Parse(os.Args[1:])
	if flags.NArg() != 1 {
		flags.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the program immediately
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving %s on http://%s/models", flags.Arg(0), l.Addr())
	s := newServer(flags.Arg(0))
	expvar.Publish("serve", s.stats)
	if err := s.run(ctx, l, *poll); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx is done. Then it accepts no further connections, waits up to half a minute
// for the requests in progress, and closes the models.
func (s *server) run(ctx context.Context, l net.Listener, poll time.Duration) error {
	defer s.close()
	s.reload()
	polls := time.NewTicker(poll)
	defer polls.Stop()
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: writeTimeout}
	served := make(chan error, 1)
	go func() { served <- h.Serve(l) }()
	for {
		select {
		case <-polls.C:
			s.reload()
		case err := <-served:
			return err
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := h.Shutdown(end); err != nil {
				return errors.Join(fmt.Errorf("requests that did not end: %w", err), h.Close())
			}
			return nil
		}
	}
}
