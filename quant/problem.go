package quant

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A problem is the value of a panic that ends the work on a checkpoint, as in encoding/gob.
type problem struct{ error }

// catch is deferred by funcs that return an error. If the func panics with a problem, catch
// recovers and sets *err to it.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case problem:
		*err = p.error
	default:
		panic(p)
	}
}

// A readError is a failure to read a tensor. It does not mean that the tensor breaks a rule of its
// layout.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// attempt calls f. If f panics with a problem, attempt returns it as why, or as err if a tensor
// could not be read.
func attempt(f func()) (why, err error) {
	func() {
		defer catch(&why)
		f()
	}()
	if errors.As(why, new(readError)) {
		return nil, why
	}
	return why, nil
}

// asRead returns err as a readError. It returns nil if err is nil.
func asRead(err error) error {
	if err != nil {
		return readError{prefix.Strip(err)}
	}
	return nil
}

// refuse panics with a problem about a tensor, which need not belong to a module.
func refuse(name, format string, args ...any) {
	panic(problem{tensorError{name, fmt.Errorf("tensor %s: %w", quote(name), fmt.Errorf(format, args...))}})
}

// A tensorError is an error about one tensor, which its text names. Package checkpoint and the command call its method
// Tensor to learn which one.
type tensorError struct {
	name string
	error
}

func (e tensorError) Unwrap() error { return e.error }

// Tensor returns the name of the tensor.
func (e tensorError) Tensor() string { return e.name }

// cut shortens untrusted text to 200 bytes.
func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// quote quotes a name for an error. It shortens a long name, because a name may be as long as a
// header.
func quote(name string) string { return strconv.Quote(cut(name)) }
