package torch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPadded: wherever a read starts, a padded reader returns the bytes of its reader, and zeros
// beyond their end.
func TestPadded(t *testing.T) {
	want := []byte{1, 2, 3, 0, 0, 0}
	p := padded{bytes.NewReader(want[:3]), 3}
	for off := range want {
		for n := 0; off+n <= len(want); n++ {
			b := bytes.Repeat([]byte{9}, n)
			got, err := p.ReadAt(b, int64(off))
			require.NoError(t, err, "%d bytes at %d", n, off)
			require.Equal(t, n, got)
			require.Equal(t, want[off:off+n], b)
		}
	}
}
