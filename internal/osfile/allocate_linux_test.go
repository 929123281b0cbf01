package osfile

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestInterruptedCalls: signals, which the runtime sends too, do not end a call; other
// errors do.
func TestInterruptedCalls(t *testing.T) {
	for _, last := range []error{nil, unix.ENOSPC} {
		calls := 0
		err := retryInterrupted(func() error {
			if calls++; calls < 4 {
				return unix.EINTR
			}
			return last
		})
		require.Equal(t, last, err)
		require.Equal(t, 4, calls)
	}
}
