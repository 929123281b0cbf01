package dest

import (
	"bytes"
	"encoding/binary"

	"github.com/gosafetensors/safetensors"
)

// Start pads the header with spaces as WriteShard does, so that the data begins at a multiple of the alignment.
func (f folder) Start(tensors map[string]safetensors.Tensor, metadata map[string]string) ([]byte, *safetensors.Header, error) {
	start, h, err := startOf(tensors, metadata)
	if err != nil {
		return nil, nil, err
	}
	if gap := -len(start) & (max(f.align, 1) - 1); gap > 0 {
		start = append(start, bytes.Repeat([]byte(" "), gap)...)
		binary.LittleEndian.PutUint64(start, uint64(len(start)-prefixSize))
	}
	return start, h, nil
}

// prefixSize is the number of bytes at the start of a safetensors file that hold the length of its header.
const prefixSize = 8

// startOf returns the start of a file as safetensors.Write writes it, up to its data, and the header.
func startOf(tensors map[string]safetensors.Tensor, metadata map[string]string) ([]byte, *safetensors.Header, error) {
	f, err := safetensors.FileOf(tensors, metadata, nil)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	h := f.Header()
	start, err := h.AppendBinary(nil)
	return start, h, err
}
