package torch

import (
	"archive/zip"
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A counted reader counts its reads. On a server, each would be a request.
type counted struct {
	*bytes.Reader
	reads atomic.Int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads.Add(1)
	return c.Reader.ReadAt(p, off)
}

// TestUnusedMembers: if no tensor uses a member, opening the archive does not read it. Only the
// directory, which is read in blocks, contains it.
func TestUnusedMembers(t *testing.T) {
	data := must(os.ReadFile("testdata/compressed.pt"))
	opening := func(more int) int64 {
		old := must(zip.NewReader(bytes.NewReader(data), int64(len(data))))
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, f := range old.File {
			require.NoError(t, w.Copy(f))
		}
		for i := range more {
			must(w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("archive/unused/%d", i), Method: zip.Store}))
		}
		require.NoError(t, w.Close())
		r := &counted{Reader: bytes.NewReader(b.Bytes())}
		f, err := Opener{Skip: func(string, error) {}}.NewFile(r, r.Size())
		require.NoError(t, err)
		require.Positive(t, f.Len())
		return r.reads.Load()
	}
	few, many := opening(0), opening(5000)
	require.Less(t, many, few+100)
}
