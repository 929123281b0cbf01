package dcp

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// These are keys and values of the metadata that torch.distributed.checkpoint writes.
const (
	shardingKey = variant.ShardingKey
	versionKey  = variant.VersionKey
	formatKey   = "format"

	version = "1.0"
	format  = "pt"

	offsetsKey = "saved_offsets" // key of the offsets of a piece, in the sharding information
)

// readOffsets returns the offsets of each tensor in a file, or nil if the file has no sharding
// information. Sharding information is a JSON object with an object for each tensor, whose
// saved_offsets are the indices of the file's first element in the whole tensor. name is the name
// of the file in errors.
func readOffsets(f *safetensors.File, name string) (map[string][]int, error) {
	text, ok := f.Metadata()[shardingKey]
	if !ok {
		return nil, nil
	}
	p := &offsetsParser{Scanner: jsonscan.Scanner{Text: []byte(text)}, file: f, offsets: make(map[string][]int, f.Len())}
	err := p.Object("an object, the pieces", p.piece)
	if err == nil {
		p.tensor = ""
		err = p.End(shardingKey)
	}
	if at := (*jsonscan.Error)(nil); errors.As(err, &at) {
		err = broken(p.tensor, "%s of %s: %s (at byte %d of its value)", shardingKey, name, at.Reason, at.Pos)
	}
	return p.offsets, err
}

// An offsetsParser reads the sharding information of a file.
type offsetsParser struct {
	jsonscan.Scanner
	file    *safetensors.File
	offsets map[string][]int
	tensor  string // name of the tensor whose entry is being read, for errors
}

// piece reads the entry of a tensor. It skips all that PyTorch ignores: other fields, and tensors
// that the file does not have.
func (p *offsetsParser) piece(key jsonscan.Span) error {
	p.tensor = string(p.Bytes(key))
	t, err := p.file.Tensor(p.tensor)
	if err != nil {
		return p.Skip(1)
	}
	if _, ok := p.offsets[p.tensor]; ok {
		return p.Fail(int(key.Off), "duplicate tensor name")
	}
	p.offsets[p.tensor], err = p.entry(len(t.Shape()))
	return err
}

// entry reads the offsets of a tensor with this rank.
func (p *offsetsParser) entry(rank int) ([]int, error) {
	var offsets []int
	start := p.Pos
	err := p.Object("an object, the place of a piece", func(key jsonscan.Span) error {
		if string(p.Bytes(key)) != offsetsKey {
			return p.Skip(2)
		}
		if offsets != nil {
			return p.Fail(int(key.Off), "duplicate field %q", offsetsKey)
		}
		var err error
		offsets, err = p.array(rank)
		return err
	})
	if err == nil && offsets == nil {
		err = p.Fail(start, "missing field %q", offsetsKey)
	}
	return offsets, err
}

// array reads the array of offsets of a tensor with this rank, one offset for each dimension.
func (p *offsetsParser) array(rank int) ([]int, error) {
	if err := p.Expect('['); err != nil {
		return nil, err
	}
	offsets := make([]int, rank)
	for i := range offsets {
		if i > 0 && !p.Byte(',') {
			return nil, p.FailHere(fmt.Sprintf("offset %d of %d, its rank", i+1, rank))
		}
		n, err := p.Integer("the offset", math.MaxInt)
		if err != nil {
			return nil, err
		}
		offsets[i] = int(n)
	}
	if !p.Byte(']') {
		return nil, p.FailHere(fmt.Sprintf("the end of %d offsets, its rank", rank))
	}
	return offsets, nil
}

// encodeOffsets returns sharding information in the spelling of Python's json.dumps, sorted by the
// names of tensors.
func encodeOffsets(offsets map[string][]int) string {
	var entries []string
	for _, name := range slices.Sorted(maps.Keys(offsets)) {
		list := strings.ReplaceAll(fmt.Sprint(offsets[name]), " ", ", ")
		entries = append(entries, fmt.Sprintf(`%s: {"%s": %s}`, jsonscan.AppendASCII(nil, name), offsetsKey, list))
	}
	return "{" + strings.Join(entries, ", ") + "}"
}
