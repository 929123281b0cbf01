package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// encodeHeader appends to b the prefix and the header of a file with those tensors,
// laid out one after another in the order given, byte for byte as the reference
// implementation writes them. It also returns where the data of each starts, and where
// that of the last ends. Metadata keys are sorted, where the reference leaves them in
// random order.
//
// It checks every rule of a header except that names are unique.
func encodeHeader(b []byte, tensors []TensorInfo, metadata map[string]string) (header []byte, bounds []int64, err error) {
	if broken := checkMetadata(metadata); broken != "" {
		return nil, nil, errors.New(broken)
	}
	start := len(b) + prefixSize
	b = append(mem.Extend(b, prefixSize+headerSizeHint(tensors, metadata))[:start], '{')
	if metadata != nil {
		b = appendMetadata(b, metadata)
		if len(tensors) > 0 {
			b = append(b, ',')
		}
	}
	e := headerEncoder{b: b, tensors: tensors, bounds: make([]int64, len(tensors)+1), begin: []byte("0")}
	for i := range tensors {
		if broken := e.entry(i); broken != "" {
			return nil, nil, tensorError(tensors[i].Name, errors.New(broken))
		}
	}
	b = append(e.b, '}')
	for (len(b)-start)%headerAlignment != 0 {
		b = append(b, ' ')
	}
	length := len(b) - start
	if length > maxHeaderLength {
		return nil, nil, fmt.Errorf("a header of %d bytes exceeds the limit of %d", length, maxHeaderLength)
	}
	binary.LittleEndian.PutUint64(b[start-prefixSize:], uint64(length))
	return b, e.bounds, nil
}

// headerSizeHint estimates the length of a header, from above.
func headerSizeHint(tensors []TensorInfo, metadata map[string]string) int {
	n := 64
	for key, value := range metadata {
		n += len(key) + len(value) + len(`"":"",`)
	}
	const offset = 16 // digits
	for i := range tensors {
		n += len(tensors[i].Name) + len(tensors[i].DType.String()) + 6*len(tensors[i].Shape) + 2*offset
		n += len(`"":{"dtype":"","shape":[],"data_offsets":[,]},`)
	}
	return n
}

func appendMetadata(b []byte, metadata map[string]string) []byte {
	b = append(b, `"`+metadataKey+`":{`...)
	keys := slices.AppendSeq(make([]string, 0, len(metadata)), maps.Keys(metadata))
	slices.Sort(keys)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, key)
		b = append(b, ':')
		b = jsonscan.AppendString(b, metadata[key])
	}
	return append(b, '}')
}

// A headerEncoder appends the entries of tensors to b.
type headerEncoder struct {
	b       []byte
	tensors []TensorInfo
	bounds  []int64
	begin   []byte // the digits of the next tensor's start: an alias into b, which keeps its bytes when b moves

	// known has the entries of recent tensors by a hash of their dtype and shape,
	// because the same few are in every layer of a model.
	known [64]struct {
		tensor   int   // its number + 1
		off, end int   // the text between name and data offsets, in b
		size     int64 // of the data
	}
}

// entry appends the entry of tensor i. It returns the rule that is broken, if one
// is.
func (e *headerEncoder) entry(i int) (broken string) {
	info := &e.tensors[i]
	if i > 0 {
		e.b = append(e.b, ',')
	}
	var plain bool
	if e.b, plain = jsonscan.AppendPlain(e.b, info.Name); !plain || info.Name == metadataKey {
		if broken = checkName(info.Name); broken != "" {
			return broken
		}
		e.b = jsonscan.AppendString(e.b, info.Name)
	}
	size, broken := e.dtypeAndShape(i)
	if broken != "" {
		return broken
	}
	end := e.bounds[i] + size
	if end < 0 {
		return "the data offsets overflow 63 bits"
	}
	e.bounds[i+1] = end
	b := append(e.b, e.begin...)
	b = append(b, ',')
	n := len(b)
	b = strconv.AppendInt(b, end, 10)
	e.begin = b[n:len(b):len(b)]
	e.b = append(b, `]}`...)
	return ""
}

// dtypeAndShape appends the text between name and data offsets, and returns the
// size of the data.
func (e *headerEncoder) dtypeAndShape(i int) (size int64, broken string) {
	info := &e.tensors[i]
	hash := uint64(info.DType)
	for _, dim := range info.Shape {
		hash = (hash ^ uint64(dim)) * 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	}
	known := &e.known[hash>>58]
	if known.tensor > 0 {
		if like := &e.tensors[known.tensor-1]; like.DType == info.DType && slices.Equal(like.Shape, info.Shape) {
			e.b = append(e.b, e.b[known.off:known.end]...)
			return known.size, ""
		}
	}
	if size, broken = checkShape(info.DType, info.Shape); broken != "" {
		return 0, broken
	}
	off := len(e.b)
	b := append(e.b, `:{"dtype":"`...)
	b = append(b, info.DType.String()...)
	b = append(b, `","shape":[`...)
	for i, dim := range info.Shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(dim), 10)
	}
	e.b = append(b, `],"data_offsets":[`...)
	known.tensor, known.off, known.end, known.size = i+1, off, len(e.b), size
	return size, ""
}
