package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// encodeHeader returns the prefix and the header of a file with those tensors,
// laid out one after another in the order given, byte for byte as the reference
// implementation writes them. It sets their data offsets. Metadata keys are
// sorted, where the reference leaves them in random order.
//
// It checks all that a header can break but names that are there twice.
func encodeHeader(tensors []TensorInfo, metadata map[string]string) ([]byte, error) {
	if broken := checkMetadata(metadata); broken != "" {
		return nil, &FormatError{Offset: -1, Reason: broken}
	}
	if err := layOut(tensors); err != nil {
		return nil, err
	}
	b := allocate[byte](prefixSize + headerSizeHint(tensors, metadata))[:prefixSize]
	b = append(b, '{')
	if metadata != nil {
		b = appendMetadata(b, metadata)
		if len(tensors) > 0 {
			b = append(b, ',')
		}
	}
	offset := []byte("0") // the digits of where the next tensor begins
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
		return nil, &FormatError{Offset: -1, Reason: fmt.Sprintf("a header of %d bytes is above the limit of %d", length, maxHeaderLength)}
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

// headerSizeHint returns about the length of a header, rather more than less.
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
		b = appendString(b, key)
		b = append(b, ':')
		b = appendString(b, metadata[key])
	}
	return append(b, '}')
}

// appendEntry appends an entry. begin are the digits of its first data offset;
// returned are those of its second, which the next tensor begins at.
func appendEntry(b []byte, info *TensorInfo, begin []byte) (longer, end []byte) {
	b = appendString(b, info.Name)
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

// appendString appends a JSON string with the escapes of the reference: what
// must be escaped is, and nothing else.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	n := len(b)
	b = append(b, s...)
	plain := plainLength(b[n:])
	b = b[:n+plain] // nearly always all of it
	for ; plain < len(s); plain++ {
		if c := s[plain]; c < ' ' || c == '"' || c == '\\' {
			b = appendEscape(b, c)
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendEscape(b []byte, c byte) []byte {
	const (
		short = "btn\x00fr" // the escapes of 0x08 to 0x0d; 0x0b has none
		hex   = "0123456789abcdef"
	)
	switch {
	case c >= ' ':
		return append(b, '\\', c)
	case c >= '\b' && c <= '\r' && c != '\v':
		return append(b, '\\', short[c-'\b'])
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
