package storage

import (
	"bytes"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An unread stream must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	require.Fail(u.t, "it was read")
	return 0, io.EOF
}

// TestSpoolLooksFirst: a stream that is said to be larger than the free space is refused before a
// byte is read, and the error names the folder and the variable. Others are copied whole.
func TestSpoolLooksFirst(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	s := &Session{Context: t.Context()}
	_, known := freeSpace(dir)
	require.Equal(t, runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "windows", known)
	if known {
		_, _, err := s.Spool(unread{t}, 1<<59)
		require.ErrorContains(t, err, "bytes that a temporary file in "+dir+" may take: set TMPDIR to a folder with more room")
	}
	for _, claimed := range []int64{-1, 4} {
		temp, size, err := s.Spool(strings.NewReader("data"), claimed)
		require.NoError(t, err)
		require.EqualValues(t, 4, size)
		require.NoError(t, temp.Close())
	}
}

// TestCopyAtMost: a stream without an end is left one byte beyond the limit, by which it is
// recognized.
func TestCopyAtMost(t *testing.T) {
	for limit, want := range map[int64]int64{0: 1, 3: 4, 4: 4, 9: 4, math.MaxInt64: 4} {
		var b bytes.Buffer
		n, err := copyAtMost(&b, strings.NewReader("data"), limit)
		require.NoError(t, err)
		require.Equal(t, want, n, limit)
	}
}
