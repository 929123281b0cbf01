package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
)

// build builds the program in rust/ and returns its name.
func build() (program string, err error) {
	cargo := exec.Command("cargo", "build", "--release", "--locked", "--quiet",
		"--manifest-path", "rust/Cargo.toml", "--target-dir", "rust/target")
	cargo.Stderr = os.Stderr
	if err := cargo.Run(); err != nil {
		return "", fmt.Errorf("building rust/: %w", err)
	}
	return filepath.Abs("rust/target/release/reference")
}

// A reference is a running program of rust/, whose documentation describes what
// goes in and out.
type reference struct {
	process *exec.Cmd
	in      *bufio.Writer
	out     *bufio.Reader
}

func start(program string) (*reference, error) {
	process := exec.Command(program)
	process.Stderr = os.Stderr
	in, inErr := process.StdinPipe()
	out, outErr := process.StdoutPipe()
	if err := errors.Join(inErr, outErr, process.Start()); err != nil {
		return nil, err
	}
	return &reference{process, bufio.NewWriterSize(in, 1<<18), bufio.NewReaderSize(out, 1<<18)}, nil
}

// stop ends the program, whatever it is doing.
func (r *reference) stop() {
	r.process.Process.Kill()
	r.process.Wait()
}

// send sends candidates. The program stops reading when nobody reads its answers.
func (r *reference) send(batch [][]byte) error {
	for _, file := range batch {
		binary.Write(r.in, binary.LittleEndian, uint32(len(file)))
		r.in.Write(file)
	}
	return r.in.Flush() // an error of Write is kept
}

// A verdict is what the reference makes of a file.
type verdict byte

const (
	unknown verdict = iota // it has not answered
	rejected
	wrongSize // the header is in order, but asks for another size of the data buffer
	accepted
)

// An answer is what the reference says of a file.
type answer struct {
	Verdict   verdict
	Reason    string            // if it rejects the file
	Tensors   map[string]entry  // else
	Metadata  map[string]string // nil if there is none
	rewritten []byte            // if it accepts the file
}

type entry struct {
	DType       safetensors.DType
	Shape       []uint64
	DataOffsets [2]uint64 `json:"data_offsets"`
}

func (a answer) String() string {
	return [...]string{"is silent", "rejects it: " + a.Reason, "rejects only the size of the file", "accepts it"}[a.Verdict]
}

// answer returns the answer to the next of the candidates that were sent.
func (r *reference) answer() (a answer, err error) {
	var length uint32
	lengthErr := binary.Read(r.out, binary.LittleEndian, &length)
	message := make([]byte, length)
	_, messageErr := io.ReadFull(r.out, message)
	d := json.NewDecoder(bytes.NewReader(message))
	if err := cmp.Or(lengthErr, messageErr, d.Decode(&a)); err != nil {
		return answer{}, fmt.Errorf("no answer of the reference: %w", err)
	}
	a.rewritten = message[d.InputOffset():]
	return a, nil
}
