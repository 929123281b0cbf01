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

// encodeHeader appends to b the prefix and the header of a file with these tensors, which follow
// one another in the order given, byte for byte as the reference implementation writes them.
// bounds holds the offset at which the data of each tensor starts, then the end of the last one.
// Metadata keys are sorted, whereas the reference leaves them in random order.
//
// Spaces at the end of the header let the data buffer start at a multiple of align bytes in the
// file, or of 8 bytes if align is less than 8. align must be 0 or a power of two.
//
// It checks every rule of a header except that names are unique.
func encodeHeader(b []byte, tensors []TensorInfo, metadata map[string]string, align int) (header []byte, bounds []int64, err error) {
	if broken := checkMetadata(metadata); broken != "" {
		return nil, nil, errors.New(broken)
	}
	start := len(b) + prefixSize
	b = append(mem.Extend(b, prefixSize+headerSizeHint(tensors, metadata)+min(max(align, 0), maxReserve))[:start], '{')
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
	length := int64(len(b) - start)
	padding := -(prefixSize + length) & int64(max(align, headerAlignment)-1)
	if length += padding; length > maxHeaderLength {
		return nil, nil, fmt.Errorf("a header of %d bytes exceeds the limit of %d", length, maxHeaderLength)
	}
	for range padding {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b[start-prefixSize:], uint64(length))
	return b, e.bounds, nil
}

// maxReserve limits the bytes that encodeHeader reserves for spaces before it knows how many it
// needs.
const maxReserve = 64 << 10

// headerSizeHint returns an upper estimate of the length of a header.
func headerSizeHint(tensors []TensorInfo, metadata map[string]string) int {
	n := 64
	for key, value := range metadata {
		n += len(key) + len(value) + len(`"":"",`)
	}
	const offset = 16 // number of digits of an offset
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
	begin   []byte // digits of the offset at which the next tensor starts; they stay valid when b is reallocated, because they refer to the old array

	// known holds the entries of recent tensors by a hash of their dtype and shape, because the
	// same few are in every layer of a model.
	known [64]struct {
		tensor   int   // index of the tensor + 1; 0 if the slot is empty
		off, end int   // place in b of the text between name and data offsets
		size     int64 // size of the data in bytes
	}
}

// entry appends the entry of tensor i. It returns the rule that the tensor breaks, "" if it
// breaks none.
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

// dtypeAndShape appends the text between name and data offsets, and returns the size of the data
// in bytes, or the rule that is broken.
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
