package term

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestColumns: the width is that of the terminal, also after it has changed.
func TestColumns(t *testing.T) {
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	require.True(t, Is(f))
	for _, width := range []uint16{123, 40} {
		require.NoError(t, unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: 24}))
		require.Equal(t, int(width), columns(f))
	}
}
