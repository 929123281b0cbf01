package safetensors

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/model.safetensors
var embedded embed.FS

// TestOpenEmbedded opens files that the program holds. It is here because a test in
// another folder cannot embed them.
func TestOpenEmbedded(t *testing.T) {
	f, err := OpenFS(embedded, "testdata")
	require.NoError(t, err)
	require.NotEmpty(t, maps.Collect(f.Tensors()))
	sub, err := fs.Sub(embedded, "testdata")
	require.NoError(t, err)
	_, err = OpenFS(sub, ".")
	require.NoError(t, err)
}

// TestTruncated truncates a mapped file: copying operations return an error, and
// the program survives.
func TestTruncated(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" && runtime.GOOS != "freebsd" {
		t.Skip("a mapped file cannot be truncated on this system")
	}
	big, err := NewTensor(F32, []int{1024, 1024}, make([]float32, 1<<20))
	require.NoError(t, err)
	half, err := NewTensor(BF16, []int{1024, 1024}, make([]uint16, 1<<20))
	require.NoError(t, err)
	name := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, WriteFile(name, map[string]Tensor{"big": big, "half": half}, nil))
	f, err := Open(name)
	require.NoError(t, err)
	defer f.Close()
	require.True(t, f.parts[0].src.mapped)
	require.NoError(t, os.Truncate(name, 8192))

	tensors := maps.Collect(f.Tensors())
	column, err := tensors["big"].Slice(All(), Span(0, 16))
	require.NoError(t, err)
	wide, err := tensors["big"].Slice(All(), Span(0, 600))
	require.NoError(t, err)
	rounded, err := tensors["big"].Convert(BF16)
	require.NoError(t, err)
	for name, tensor := range map[string]Tensor{"whole": tensors["big"], "column": column, "wide": wide, "rounded": rounded, "half": tensors["half"]} {
		t.Run(name, func(t *testing.T) {
			_, err := Append[byte](nil, tensor)
			require.ErrorIs(t, err, errFault)
			if float.Exact(tensor.DType().float(), float.F32) {
				_, err = Append[float32](nil, tensor)
				require.ErrorIs(t, err, errFault)
			}
			var out bytes.Buffer
			_, err = tensor.WriteTo(&out)
			require.ErrorIs(t, err, errFault)
			_, err = tensor.WriteTo(sha256.New())
			require.ErrorIs(t, err, errFault)
			target := filepath.Join(t.TempDir(), "x")
			require.Error(t, WriteFile(target, map[string]Tensor{"x": tensor}, nil))
			require.NoFileExists(t, target)
			// A pipe is read on another goroutine, where a fault would not be caught.
			r, w := io.Pipe()
			done := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, r)
				done <- err
			}()
			_, err = tensor.WriteTo(w)
			w.Close()
			require.ErrorIs(t, err, errFault)
			require.NoError(t, <-done)
		})
	}
}

// TestGuardPassesOtherPanics checks that only faults in the mapping become
// errors: any other panic and any error of the function pass.
func TestGuardPassesOtherPanics(t *testing.T) {
	s := &source{mem: make([]byte, 8), mapped: true}
	require.PanicsWithValue(t, "other", func() { s.guard(func() error { panic("other") }) })
	require.Panics(t, func() {
		s.guard(func() error {
			var p *int
			*p = 1
			return nil
		})
	})
	require.ErrorIs(t, s.guard(func() error { return io.EOF }), io.EOF)
}
