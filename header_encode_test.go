package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/stretchr/testify/require"
)

// naiveHeader encodes a header entry by entry.
func naiveHeader(tensors []TensorInfo) []byte {
	var entries []string
	end := int64(0)
	for _, t := range tensors {
		begin := end
		size, _ := checkShape(t.DType, t.Shape)
		end += size
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(t.Shape), "[]"), " ", ",")
		entries = append(entries, fmt.Sprintf(`%s:{"dtype":"%v","shape":[%s],"data_offsets":[%d,%d]}`,
			jsonscan.AppendString(nil, t.Name), t.DType, shape, begin, end))
	}
	text := "{" + strings.Join(entries, ",") + "}"
	text += strings.Repeat(" ", -len(text)&7)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}

// TestEncodeAgainstNaive encodes headers with many shapes, which often repeat, and with names of
// which only some need escapes.
func TestEncodeAgainstNaive(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"model.layers.", "\"", "\\", "é", "\x00", "weight", "0123456789", "\U0001f600", "\x7f"}
	for range 200 {
		var tensors []TensorInfo
		for i := range random.IntN(300) {
			name := fmt.Sprint(i)
			for range random.IntN(4) {
				name += pieces[random.IntN(len(pieces))]
			}
			shape := make([]int, random.IntN(4))
			for k := range shape {
				shape[k] = random.IntN(1 << random.IntN(12))
			}
			dtype := []DType{U8, BF16, F32, I64}[random.IntN(4)]
			tensors = append(tensors, TensorInfo{Name: name, DType: dtype, Shape: shape})
		}
		header, bounds, err := encodeHeader([]byte("before"), tensors, nil, 0)
		require.NoError(t, err)
		require.Len(t, bounds, len(tensors)+1)
		require.Equal(t, "before"+string(naiveHeader(tensors)), string(header))
	}
}

// TestEncodeOverflow: a sum of sizes that overflows is an error, even if a tensor has the dtype and
// shape of an earlier one.
func TestEncodeOverflow(t *testing.T) {
	quarter := TensorInfo{DType: U8, Shape: []int{math.MaxInt32, 1 << 30}} // nearly 2^61
	_, bounds, err := encodeHeader(nil, slices.Repeat([]TensorInfo{quarter}, 4), nil, 0)
	require.NoError(t, err)
	require.Greater(t, bounds[4], int64(1<<62))
	_, _, err = encodeHeader(nil, slices.Repeat([]TensorInfo{quarter}, 5), nil, 0)
	require.ErrorContains(t, err, "the data offsets overflow 63 bits")
}

// TestDuplicateName compares duplicateName with a map, for names in sorted runs.
func TestDuplicateName(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		tensors := make([]TensorInfo, random.IntN(12))
		runs := 1 + random.IntN(6)
		for i := range tensors {
			tensors[i].Name = fmt.Sprintf("%02d", random.IntN(60))
		}
		for part := range slices.Chunk(tensors, max(1, len(tensors)/runs)) {
			slices.SortFunc(part, func(a, b TensorInfo) int { return strings.Compare(a.Name, b.Name) })
		}
		names := make(map[string]bool)
		for _, info := range tensors {
			names[info.Name] = true
		}
		found := duplicateName(tensors)
		require.Equal(t, len(names) < len(tensors), found >= 0, "%v", tensors)
		if found >= 0 {
			require.Greater(t, slices.IndexFunc(tensors[:found], func(info TensorInfo) bool { return info.Name == tensors[found].Name }), -1)
		}
	}
}

// TestEncodeAllocations: writing the header of a large model takes at most five allocations.
func TestEncodeAllocations(t *testing.T) {
	h := &Header{Tensors: llama70B(80)}
	slices.SortFunc(h.Tensors, func(a, b TensorInfo) int { return strings.Compare(a.Name, b.Name) }) // the order of names in files
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
		must(NewWriter(io.Discard, h))
	}), 5.0)
}

// TestLimitIsExact writes the longest header that can be read, and none that is longer.
func TestLimitIsExact(t *testing.T) {
	if testing.Short() { // 100 MB
		return
	}
	longest := maxHeaderLength - len(`{"__metadata__":{"k":""}}`)
	value := strings.Repeat("x", longest+1)
	header, _, err := encodeHeader(nil, nil, map[string]string{"k": value[:longest]}, 0)
	require.NoError(t, err)
	require.EqualValues(t, maxHeaderLength, must(checkHeaderLength(header, -1)))
	_, _, err = encodeHeader(nil, nil, map[string]string{"k": value}, 0)
	require.EqualError(t, err, "a header of 100000008 bytes exceeds the limit of 100000000")
	_, err = checkHeaderLength(binary.LittleEndian.AppendUint64(nil, maxHeaderLength+1), -1)
	require.EqualError(t, err, "header length 100000001 exceeds the limit of 100000000: perhaps this is not a safetensors file (at byte 0)")
}
