package prefix

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAdd: the prefix is added once, and the error keeps what it wraps.
func TestAdd(t *testing.T) {
	require.NoError(t, Add(nil))
	err := Add(fs.ErrNotExist)
	require.EqualError(t, err, "safetensors: file does not exist")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, Add(err), err.Error(), "once is enough")
}

// TestStrip: only the prefix that Add put there is removed, not the same text in an error of a
// caller.
func TestStrip(t *testing.T) {
	require.NoError(t, Strip(nil))
	require.Equal(t, fs.ErrClosed, Strip(Add(fs.ErrClosed)))
	require.Equal(t, fs.ErrClosed, Strip(fs.ErrClosed))
	for _, foreign := range []error{
		errors.New("safetensors: of a caller"),
		fmt.Errorf("of a caller: %w", Add(fs.ErrClosed)),
	} {
		require.Equal(t, foreign, Strip(foreign))
	}
}

// TestOpenError: the text has the name of the file once.
func TestOpenError(t *testing.T) {
	for _, err := range []error{fs.ErrNotExist, Add(fs.ErrNotExist), &fs.PathError{Op: "stat", Path: "x", Err: fs.ErrNotExist}} {
		require.EqualError(t, OpenError("x", err), "open x: file does not exist", "the name once")
	}
	require.EqualError(t, OpenError("y", &fs.PathError{Op: "stat", Path: "x", Err: fs.ErrNotExist}), "open y: stat x: file does not exist")
}
