package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// encodeHeader returns the prefix and the header of a file with those tensors,
// laid out one after another in the order given, byte for byte as the reference
// implementation writes them. It sets their data offsets. Metadata keys are
// sorted, where the reference leaves them in random order.
//
// It checks every rule of a header except that names are unique.
func encodeHeader(tensors []TensorInfo, metadata map[string]string) ([]byte, error) {
	if broken := checkMetadata(metadata); broken != "" {
		return nil, &FormatError{Offset: -1, Reason: broken}
	}
	if err := layOut(tensors); err != nil {
		return nil, err
	}
	b := mem.Allocate[byte](prefixSize + headerSizeHint(tensors, metadata))[:prefixSize]
	b = append(b, '{')
	if metadata != nil {
		b = appendMetadata(b, metadata)
		if len(tensors) > 0 {
			b = append(b, ',')
		}
	}
	offset := []byte("0") // the digits of the next tensor's start
	for i := range tensors {
		if i > 0 {
			b = append(b, ',')
		}
		b, offset = appendEntry(b, &tensors[i], offset)
	}
	b = append(b, '}')
	for len(b)%headerAlignment != 0 {
		b = append(b, ' ')
	}
	length := len(b) - prefixSize
	if length > maxHeaderLength {
		return nil, &FormatError{Offset: -1, Reason: fmt.Sprintf("a header of %d bytes exceeds the limit of %d", length, maxHeaderLength)}
	}
	binary.LittleEndian.PutUint64(b, uint64(length))
	return b, nil
}

// layOut checks the tensors and sets their data offsets.
func layOut(tensors []TensorInfo) error {
	end := int64(0)
	for i := range tensors {
		info := &tensors[i]
		size, broken := checkShape(info.DType, info.Shape)
		if broken == "" {
			broken = checkName(info.Name)
		}
		if broken == "" && size > math.MaxInt64-end {
			broken = "the data offsets overflow 63 bits"
		}
		if broken != "" {
			return &FormatError{Offset: -1, Tensor: info.Name, Reason: broken}
		}
		info.DataOffsets = [2]int64{end, end + size}
		end += size
	}
	return nil
}

// headerSizeHint estimates the length of a header, from above.
func headerSizeHint(tensors []TensorInfo, metadata map[string]string) int {
	n := 64
	for key, value := range metadata {
		n += len(key) + len(value) + len(`"":"",`)
	}
	if len(tensors) == 0 {
		return n
	}
	offset := len(strconv.FormatInt(tensors[len(tensors)-1].DataOffsets[1], 10))
	for i := range tensors {
		n += len(tensors[i].Name) + len(tensors[i].DType.String()) + 6*len(tensors[i].Shape) + 2*offset
		n += len(`"":{"dtype":"","shape":[],"data_offsets":[,]},`)
	}
	return n
}

func appendMetadata(b []byte, metadata map[string]string) []byte {
	b = append(b, `"`+metadataKey+`":{`...)
	for i, key := range slices.Sorted(maps.Keys(metadata)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendString(b, key)
		b = append(b, ':')
		b = jsonscan.AppendString(b, metadata[key])
	}
	return append(b, '}')
}

// appendEntry appends an entry. begin holds the digits of the tensor's start
// offset. It returns the digits of its end offset for the next entry: an alias
// into b, which keeps its bytes when b moves to a larger array.
func appendEntry(b []byte, info *TensorInfo, begin []byte) (longer, end []byte) {
	b = jsonscan.AppendString(b, info.Name)
	b = append(b, `:{"dtype":"`...)
	b = append(b, info.DType.String()...)
	b = append(b, `","shape":[`...)
	for i, dim := range info.Shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(dim), 10)
	}
	b = append(b, `],"data_offsets":[`...)
	b = append(b, begin...)
	b = append(b, ',')
	n := len(b)
	b = strconv.AppendInt(b, info.DataOffsets[1], 10)
	end = b[n:len(b):len(b)]
	return append(b, `]}`...), end
}
