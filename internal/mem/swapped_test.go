package mem

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSwapped reads every window, of whole numbers and of parts of them.
func TestSwapped(t *testing.T) {
	want := []byte("cbafedihg")
	s := Swapped{bytes.NewReader([]byte("abcdefghi")), 3}
	for off := range len(want) + 3 {
		for n := range len(want) + 4 {
			p := make([]byte, n)
			got, err := s.ReadAt(p, int64(off))
			there := want[min(off, len(want)):min(off+n, len(want))]
			require.Equal(t, string(there), string(p[:got]), "%d from %d", n, off)
			if got < n {
				require.Equal(t, io.EOF, err)
			} else {
				require.NoError(t, err)
			}
		}
	}
}
