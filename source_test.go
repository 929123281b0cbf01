package safetensors

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

//go:embed testdata/model.safetensors
var embedded embed.FS

// TestOpenEmbedded opens files that are embedded in the program. It is in this package because
// tests in other directories cannot embed these files.
func TestOpenEmbedded(t *testing.T) {
	require.NotEmpty(t, maps.Collect(must(OpenFS(embedded, "testdata")).Tensors()))
	must(OpenFS(must(fs.Sub(embedded, "testdata")), "."))
}

// TestTruncated truncates a mapped file, to whole pages and within a page, whose rest then reads as
// zeros. Operations that copy return an error, and the program survives.
func TestTruncated(t *testing.T) {
	testplatform.NeedTruncation(t)
	ones := bytes.Repeat([]byte{1}, 4<<20)
	big := must(NewTensor(F32, []int{1024, 1024}, ones))
	half := must(NewTensor(BF16, []int{1024, 1024}, ones[:2<<20]))
	name := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, WriteFile(name, map[string]Tensor{"big": big, "half": half}, nil))
	whole := must(os.ReadFile(name))

	for _, size := range []int{8192, len(whole) - 4} {
		require.NoError(t, os.WriteFile(name, whole, 0o666))
		f := must(Open(name))
		defer f.Close()
		require.NotNil(t, f.parts[0].src.mapped)
		require.NoError(t, os.Truncate(name, int64(size)))
		if m := f.parts[0].src.mapped; size == 8192 {
			require.ErrorIs(t, m.guard(func() error { mem.Touch(m.bytes); return nil }), errFault)
			other := &mapping{bytes: make([]byte, 8)}
			require.Panics(t, func() { other.guard(func() error { mem.Touch(m.bytes); return nil }) }, "a fault elsewhere")
			page := os.Getpagesize()
			lost := (size + page - 1) / page * page
			require.ErrorIs(t, m.guard(func() error { mem.Touch(m.bytes[lost-1 : lost+1]); return nil }), errFault, "a page for each byte")
		}

		tensors := maps.Collect(f.Tensors())
		last := tensors["half"] // the last tensor in the file
		column := must(last.Slice(All(), Span(1000, 1024)))
		wide := must(last.Slice(All(), Span(400, 1024)))
		row := must(last.Slice(Span(1023, 1024)))
		rounded := must(last.Convert(F8_E4M3))
		transposed := must(last.Transpose())
		for name, tensor := range map[string]Tensor{"whole": last, "column": column, "wide": wide, "row": row, "rounded": rounded, "transposed": transposed} {
			t.Run(fmt.Sprint(size, " ", name), func(t *testing.T) { truncatedTensor(t, tensor) })
		}
	}
}

// truncatedTensor copies a tensor of a truncated file in every way.
func truncatedTensor(t *testing.T, tensor Tensor) {
	lost := func(way string, err error) {
		t.Helper()
		require.Error(t, err, way)
		require.True(t, errors.Is(err, errFault) || errors.Is(err, io.ErrUnexpectedEOF), "%s: %v", way, err)
	}
	file := must(os.Create(filepath.Join(t.TempDir(), "x")))
	defer file.Close()
	target := filepath.Join(t.TempDir(), "x")
	var out bytes.Buffer
	for way, err := range map[string]error{
		"Append":            errorOf(Append[byte](nil, tensor)),
		"Append, converted": errorOf(Append[float32](nil, tensor)),
		"ReadAt":            errorOf(tensor.ReadAt(make([]byte, 8), tensor.Size()-8)),
		"WriteTo":           errorOf(tensor.WriteTo(&out)),
		"WriteTo a hash":    errorOf(tensor.WriteTo(sha256.New())),
		"WriteTo a file":    errorOf(tensor.WriteTo(file)),
		"WriteFile":         WriteFile(target, map[string]Tensor{"x": tensor}, nil),
	} {
		lost(way, err)
	}
	require.NoFileExists(t, target)
	// A pipe is read on another goroutine, where a fault would not be caught.
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- errorOf(io.Copy(io.Discard, r)) }()
	_, err := tensor.WriteTo(w)
	w.Close()
	lost("WriteTo a pipe", err)
	require.NoError(t, <-done)
}

// TestGuardPassesOtherPanics checks that only faults in the mapping become
// errors: any other panic and any error of the function pass.
func TestGuardPassesOtherPanics(t *testing.T) {
	m := &mapping{bytes: make([]byte, 8)}
	require.PanicsWithValue(t, "other", func() { m.guard(func() error { panic("other") }) })
	require.Panics(t, func() {
		m.guard(func() error {
			var p *int
			*p = 1
			return nil
		})
	})
	require.ErrorIs(t, m.guard(func() error { return io.EOF }), io.EOF)
}

// TestCloseUnmaps: Close gives back the mapping and the file.
func TestCloseUnmaps(t *testing.T) {
	f := must(Open("testdata/model.safetensors"))
	m := f.parts[0].src.mapped
	if !testplatform.Maps {
		require.Nil(t, m)
		return
	}
	require.NoError(t, f.Close())
	require.ErrorIs(t, m.file.Close(), os.ErrClosed)
	require.Error(t, munmap(m.bytes), "it is mapped no more")
}

// TestOpenUnmapped opens files as on a system that cannot map them.
func TestOpenUnmapped(t *testing.T) {
	const name = "testdata/model.safetensors"
	f := must(openUnmapped(name))
	require.Equal(t, must(Load(name)).Header(), f.Header())
	require.NoError(t, f.Close())
	require.ErrorIs(t, errorOf(openUnmapped("testdata/absent")), fs.ErrNotExist)
}
