package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// A judge compares what this package makes of files with what the reference does, and
// counts them by that.
type judge map[string]int

const (
	acceptedByBoth = "accepted by both"
	rejectedByBoth = "rejected by both"
	byPolicy       = "rejected by policy: " // and the rule
)

// files returns how many files were compared.
func (j judge) files() (n int) {
	for _, count := range j {
		n += count
	}
	return n
}

// judge returns the first difference. A panic is one too.
func (j judge) judge(file []byte, ref answer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	var spelled object
	if ref.Verdict != rejected {
		text, _ := headerText(file)
		if spelled, err = parseJSON(text); err != nil {
			return fmt.Errorf("the reference accepts what is not JSON: %w", err)
		}
	}
	f, parseErr := safetensors.Parse(file)
	counted, err := compareVerdicts("Parse", file, parseErr, ref.Verdict == accepted, spelled)
	if err != nil {
		return err
	}
	j[counted]++

	r := bytes.NewReader(file)
	h, headerErr := safetensors.ReadHeader(r)
	if _, err := compareVerdicts("ReadHeader", file, headerErr, ref.Verdict != rejected, spelled); err != nil {
		return err
	}
	if headerErr == nil {
		if consumed := r.Size() - int64(r.Len()); consumed != h.DataStart {
			return fmt.Errorf("ReadHeader consumes %d bytes, Header.DataStart is %d", consumed, h.DataStart)
		}
		if err := compareTables(h, ref, spelled); err != nil {
			return err
		}
	}
	n, newErr := safetensors.NewFile(bytes.NewReader(file), r.Size())
	if fmt.Sprint(newErr) != fmt.Sprint(parseErr) || errors.Is(newErr, io.ErrUnexpectedEOF) != errors.Is(parseErr, io.ErrUnexpectedEOF) {
		return fmt.Errorf("NewFile returns the error %v, Parse %v", newErr, parseErr)
	}
	if parseErr != nil {
		return nil
	}
	if !reflect.DeepEqual(f.Header(), h) || !reflect.DeepEqual(n.Header(), h) {
		return errors.New("the headers that Parse, NewFile and ReadHeader return differ")
	}
	return compareRewritten(f, ref.rewritten)
}

// compareVerdicts returns what to count for the error of a function of this
// package, and a difference unless it is nil exactly if the reference accepts the
// file and no rule of the policy is broken. An error must be a FormatError with a place in
// the file.
func compareVerdicts(function string, file []byte, ours error, accepts bool, h object) (counted string, err error) {
	var broken *safetensors.FormatError
	switch {
	case ours == nil && !accepts:
		return "", fmt.Errorf("%s accepts what the reference rejects", function)
	case ours != nil && (!errors.As(ours, &broken) || broken.Offset < 0 || broken.Offset > int64(len(file)) || broken.Reason == ""):
		return "", fmt.Errorf("the error of %s is no FormatError with a reason and a place in the file: %w", function, ours)
	case !accepts:
		return rejectedByBoth, nil
	}
	for _, r := range policy {
		switch {
		case !r.broken(h):
		case ours == nil:
			return "", fmt.Errorf("%s accepts what breaks a rule of the policy: %s", function, r.name)
		case broken != nil && r.reason.MatchString(broken.Reason):
			return byPolicy + r.name, nil
		}
	}
	if ours != nil {
		return "", fmt.Errorf("%s rejects what the reference accepts and the policy allows: %w", function, ours)
	}
	return acceptedByBoth, nil
}

// compareTables compares a header that both sides accept. The reference gives its
// tensors in no order; by offsets, and else as they are spelled, is that of Header.
func compareTables(h *safetensors.Header, ref answer, spelled object) error {
	want := slices.DeleteFunc(slices.Clone(spelled), func(m member) bool { return m.key == metadataKey })
	slices.SortStableFunc(want, func(a, b member) int {
		x, y := ref.Tensors[a.key].DataOffsets, ref.Tensors[b.key].DataOffsets
		return slices.Compare(x[:], y[:])
	})
	if !slices.EqualFunc(h.Tensors, want, func(t safetensors.TensorInfo, m member) bool {
		e := ref.Tensors[m.key]
		return t.Name == m.key && t.DType == e.DType && e.DataOffsets == [2]uint64{uint64(t.DataOffsets[0]), uint64(t.DataOffsets[1])} &&
			slices.EqualFunc(t.Shape, e.Shape, func(n int, m uint64) bool { return uint64(n) == m })
	}) {
		return fmt.Errorf("ReadHeader returns the tensors %v, the reference has %v", h.Tensors, ref.Tensors)
	}
	if !maps.Equal(h.Metadata, ref.Metadata) || (h.Metadata == nil) != (ref.Metadata == nil) {
		return fmt.Errorf("ReadHeader returns the metadata %#v, the reference has %#v", h.Metadata, ref.Metadata)
	}
	return nil
}

// The header of a file without tensors and with empty metadata, as Write writes it
// and as the reference does, which is no JSON (doc/decisions.md).
const (
	emptyHeader   = `{"__metadata__":{}}     `
	spoiledHeader = `{},"__metadata__":{}}   `
)

// compareRewritten compares what Write makes of a file with what the reference
// does, whose order of several metadata keys is random.
func compareRewritten(f *safetensors.File, want []byte) error {
	var written bytes.Buffer
	if err := safetensors.Write(&written, maps.Collect(f.Tensors()), f.Metadata()); err != nil {
		return err
	}
	got := written.Bytes()
	var alike bool
	switch size := 8 + binary.LittleEndian.Uint64(want); {
	case len(f.Metadata()) > 1:
		alike = len(got) == len(want) && bytes.Equal(got[size:], want[size:])
	case string(want[8:]) == spoiledHeader:
		alike = string(got[8:]) == emptyHeader
	default:
		alike = bytes.Equal(got, want)
	}
	if !alike {
		return fmt.Errorf("what Write writes\n%q\nis not what the reference writes\n%q", got, want)
	}
	return nil
}
