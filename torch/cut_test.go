package torch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestCut: a file of either format that is cut short is a FormatError that wraps io.ErrUnexpectedEOF, as for
// package safetensors, unless too few bytes are left to recognize it.
func TestCut(t *testing.T) {
	const enough = 4
	at := filepath.Join(t.TempDir(), "x.pt")
	for _, name := range []string{"state_dict.pt", "legacy.pt", "compressed.pt"} {
		data := must(os.ReadFile("testdata/" + name))
		for n := range data {
			if n > 0 && n < enough {
				continue
			}
			err := errorOf(OpenFS(fstest.MapFS{"x.pt": &fstest.MapFile{Data: data[:n]}}, "x.pt"))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%d bytes of %s", n, name)
			require.ErrorAs(t, err, new(*safetensors.FormatError))
		}
		require.NoError(t, os.WriteFile(at, data[:len(data)/2], 0o666))
		require.ErrorIs(t, errorOf(Open(at)), io.ErrUnexpectedEOF)
	}
	err := errorOf(openBytes(zipOf(t, "\x80\x02}("), "")) // a complete archive whose pickle is cut
	require.ErrorAs(t, err, new(*safetensors.FormatError))
	require.NotErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A strictReader refuses offsets outside of its data, like the files of an operating system and of
// an fs.FS.
type strictReader struct{ *bytes.Reader }

var errOutside = errors.New("an offset outside of the data")

func (s strictReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > s.Size() {
		return 0, errOutside
	}
	return s.Reader.ReadAt(p, off)
}

// TestDamaged: whichever byte is wrong, every error is a FormatError, when the file is opened and
// when it is read.
func TestDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"state_dict.pt", "compressed.pt"} {
		whole := must(os.ReadFile("testdata/" + name))
		for range 3000 {
			data := bytes.Clone(whole)
			for range 1 + rng.IntN(3) {
				data[len(data)-1-rng.IntN(rng.IntN(len(data))+1)] ^= 1 << rng.IntN(8) // most changes are near the directory at the end
			}
			requireFormatError(t, data)
		}
	}

	// This changes the offset of the 64-bit end record, which archive/zip reads wherever it is.
	data := zip64(must(os.ReadFile("testdata/state_dict.pt")))
	requireFormatError(t, data)
	for _, place := range []uint64{1 << 63, 1<<64 - 1, 1 << 62} {
		binary.LittleEndian.PutUint64(data[len(data)-22-20+8:], place)
		err := errorOf(NewFile(strictReader{bytes.NewReader(data)}, int64(len(data))))
		require.ErrorAs(t, err, new(*safetensors.FormatError))
		require.ErrorContains(t, err, "reading the zip directory: zip: not a valid zip file")
	}
}

// requireFormatError requires that a file can be read, or that its errors are FormatErrors.
func requireFormatError(t *testing.T, data []byte) {
	t.Helper()
	f, err := Opener{Skip: func(string, error) {}}.NewFile(strictReader{bytes.NewReader(data)}, int64(len(data)))
	if err != nil {
		require.ErrorAs(t, err, new(*safetensors.FormatError))
		return
	}
	for _, x := range f.Tensors() {
		if _, err := safetensors.Append[byte](nil, x); err != nil {
			require.ErrorAs(t, err, new(*safetensors.FormatError))
		}
	}
}

// zip64 returns an archive with 64-bit records in front of its end record, which refers to them.
func zip64(archive []byte) []byte {
	const endSize = 22
	at := len(archive) - endSize
	end := bytes.Clone(archive[at:])
	members, length, offset := binary.LittleEndian.Uint16(end[10:]), binary.LittleEndian.Uint32(end[12:]), binary.LittleEndian.Uint32(end[16:])
	out := append(bytes.Clone(archive[:at]), "PK\x06\x06\x2c\x00\x00\x00\x00\x00\x00\x00\x2d\x00\x2d\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for _, n := range []uint64{uint64(members), uint64(members), uint64(length), uint64(offset)} {
		out = binary.LittleEndian.AppendUint64(out, n)
	}
	out = binary.LittleEndian.AppendUint64(append(out, "PK\x06\x07\x00\x00\x00\x00"...), uint64(at))
	out = append(out, 1, 0, 0, 0)
	copy(end[8:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	return append(out, end...)
}
