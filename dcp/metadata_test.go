package dcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/stretchr/testify/require"
)

// TestShared: what the memo holds once, a list of chunks or the place of one, counts each
// time it is used. A file of 1.3 MB with such a list took more than 6 GB.
func TestShared(t *testing.T) {
	const n = 100
	var ones []string
	for i := range n {
		ones = append(ones, boxOf([]int{i}, []int{1}))
	}
	tensors := tensorOf("float32", []int{n}, ones...) + "q\x000}("
	for i := range 10 * n {
		tensors += str(fmt.Sprint(i)) + "h\x00"
	}
	place := index("w", make([]int, maxRank)...) + "q\x000" + info("x", 0, 10) + "q\x010"
	for name, meta := range map[string]string{
		"chunks": metadata(tensors+"u", "}"),
		"places": metadata("}", place+"}("+strings.Repeat("h\x00h\x01", 10*n)+"u"),
	} {
		t.Run(name, func(t *testing.T) {
			u := pickle.New(strings.NewReader(meta), int64(len(meta)))
			u.MaxSteps = 30_000
			_, err := unpickle(u)
			require.ErrorContains(t, err, "the pickle copies too much")
			require.NotContains(t, err.Error(), "at byte", "the pickle alone takes fewer steps")
		})
	}
}
