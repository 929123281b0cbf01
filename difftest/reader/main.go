// Reader judges a file as a Go library does: it exits with 0 if the library accepts the
// file, with 1 if it refuses it.
//
//	go build -o /tmp/reader ./reader
//	go run . -reader '/tmp/reader maruel'
package main

import (
	"log"
	"os"

	"github.com/gosafetensors/safetensors"
	maruel "github.com/maruel/safetensors"
	nlpodyssey "github.com/nlpodyssey/safetensors"
)

// libraries parse a whole file and check what they check.
var libraries = map[string]func(file []byte) error{
	"this":       func(file []byte) error { _, err := safetensors.Parse(file); return err },
	"maruel":     func(file []byte) error { _, err := maruel.Parse(file); return err },
	"nlpodyssey": func(file []byte) error { _, err := nlpodyssey.Deserialize(file); return err },
}

const usage = 2 // the exit status of a mistake that is not the library's

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 || libraries[os.Args[1]] == nil {
		log.Print("usage: reader this|maruel|nlpodyssey FILE")
		os.Exit(usage)
	}
	file, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Print(err)
		os.Exit(usage)
	}
	if err := libraries[os.Args[1]](file); err != nil {
		log.Fatal(err)
	}
}
