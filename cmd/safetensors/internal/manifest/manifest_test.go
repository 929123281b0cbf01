package manifest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRoundTrip: Read returns what Write wrote, whatever is in the names.
func TestRoundTrip(t *testing.T) {
	m := &Manifest{}
	for _, name := range []string{"model.safetensors", "a b", `back\slash`, "new\nline", "\r", "*star", "größe", `\n`} {
		m.Files = append(m.Files, Entry{Name: name, Sum: sha256.Sum256([]byte(name))})
	}
	for _, name := range []string{"", "x y", `"q"`, "\x1b\n", "重み", "\u202e"} {
		m.Tensors = append(m.Tensors, Entry{Name: name, Sum: sha256.Sum256([]byte(name)), Type: "F32 [2,3]"})
	}
	var b bytes.Buffer
	require.NoError(t, m.Write(&b))
	require.NotContains(t, b.String(), "\x1b")
	got, err := Read(&b)
	require.NoError(t, err)
	require.Equal(t, m, got)
}

// TestControls: a name that a terminal would obey is not written, nor anything else.
func TestControls(t *testing.T) {
	for _, name := range []string{"\x1b[31m", "a\x07", "\u009b", "\x00", "\x7f"} {
		var b bytes.Buffer
		m := &Manifest{Files: []Entry{{Name: "model.safetensors"}, {Name: name}}}
		require.ErrorContains(t, m.Write(&b), "has control characters", "%q", name)
		require.Zero(t, b.Len())
	}
}

// zeros is an endless line; it fails a test that reads more than it should.
type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left -= len(p); z.left < 0 {
		return 0, errors.New("read on and on")
	}
	clear(p)
	return len(p), nil
}

// TestReadLongLine: what has no lines is given up early.
func TestReadLongLine(t *testing.T) {
	_, err := Read(&zeros{left: 4 * maxLine})
	require.EqualError(t, err, "line 1: longer than 1048576 bytes")
	name := strings.Repeat("x", maxLine-100)
	m, err := Read(strings.NewReader(strings.Repeat("0f", 32) + "  " + name))
	require.NoError(t, err)
	require.Equal(t, name, m.Files[0].Name)
}

// TestRead reads the spellings of sha256sum, and refuses lines that are not sums.
func TestRead(t *testing.T) {
	sum := strings.Repeat("0f", 32)
	m, err := Read(strings.NewReader(sum + " *binary\r\n\n# a comment\n" + strings.ToUpper(sum) + "  text\n" + sum + "  ./found\n"))
	require.NoError(t, err)
	require.Equal(t, "binary", m.Files[0].Name)
	require.Equal(t, "text", m.Files[1].Name)
	require.Equal(t, "found", m.Files[2].Name)
	require.Equal(t, sum, m.Files[1].Sum.String())
	for _, bad := range []string{
		"x", sum, sum + " name", sum + "  ", sum[1:] + "  name", sum + "00  name", "zz" + sum[2:] + "  name",
		"# tensor " + sum, "# tensor " + sum + " x", "# tensor 00 \"x\" F32 []",
	} {
		_, err := Read(strings.NewReader("# first\n" + bad + "\n"))
		require.ErrorContains(t, err, "line 2: ", "%q", bad)
	}
}
