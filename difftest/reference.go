package main

import (
	"bufio"
	"encoding/binary"
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
		var length [4]byte
		binary.LittleEndian.PutUint32(length[:], uint32(len(file)))
		r.in.Write(length[:])
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
	verdict   verdict
	reason    string            // if it rejects the file
	tensors   map[string]entry  // else
	metadata  map[string]string // nil if there is none
	rewritten []byte            // if it accepts the file
}

type entry = safetensors.TensorInfo

func (a answer) String() string {
	return [...]string{"is silent", "rejects it: " + a.reason, "rejects only the size of the file", "accepts it"}[a.verdict]
}

// answer returns the answer to the next of the candidates that were sent.
func (r *reference) answer() (a answer, err error) {
	var length [4]byte
	if _, err := io.ReadFull(r.out, length[:]); err != nil {
		return a, err
	}
	message := make([]byte, binary.LittleEndian.Uint32(length[:]))
	if _, err := io.ReadFull(r.out, message); err != nil {
		return a, err
	}
	d := decoder(message)
	a.verdict = verdict(d.uint8())
	if a.verdict == rejected {
		a.reason = string(d)
		return a, nil
	}
	a.tensors = make(map[string]entry)
	for range d.uint32() {
		t := entry{Name: d.string()}
		if err := t.DType.UnmarshalText([]byte(d.string())); err != nil {
			return a, err
		}
		t.Shape = make([]int, d.uint32())
		for i := range t.Shape {
			t.Shape[i] = int(d.uint64())
		}
		t.DataOffsets = [2]int64{int64(d.uint64()), int64(d.uint64())}
		a.tensors[t.Name] = t
	}
	if d.uint8() == 1 {
		a.metadata = make(map[string]string)
	}
	for range d.uint32() {
		key := d.string()
		a.metadata[key] = d.string()
	}
	a.rewritten = d
	return a, nil
}

// A decoder is the rest of a message.
type decoder []byte

func (d *decoder) next(n int) []byte {
	b := (*d)[:n]
	*d = (*d)[n:]
	return b
}

func (d *decoder) uint8() uint8   { return d.next(1)[0] }
func (d *decoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.next(4)) }
func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.next(8)) }
func (d *decoder) string() string { return string(d.next(int(d.uint32()))) }
