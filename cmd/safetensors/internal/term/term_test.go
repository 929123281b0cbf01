package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/stretchr/testify/require"
)

// TestQuote: printable text stays, and whatever a terminal could obey is quoted.
func TestQuote(t *testing.T) {
	for s, want := range map[string]string{
		"model.layers.0":        "model.layers.0",
		"größe 重み":              "größe 重み",
		`a\b "c"`:               `a\b "c"`,
		"":                      `""`,
		`"a"`:                   `"\"a\""`,
		"\x1b[31m":              `"\x1b[31m"`,
		"\u009b31m":             `"\u009b31m"`, // a control of the C1 set
		"\u202egpj.exe":         `"\u202egpj.exe"`,
		"\u2066x":               `"\u2066x"`,
		"\u200bx":               `"\u200bx"`,
		"\xff":                  `"\xff"`,
		"123456789012345678901": "12345678901234567890…",
	} {
		require.Equal(t, want, Quote(s, 20), "%q", s)
	}
	long := strings.Repeat("ä", 1<<22)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.Equal(t, "ä…", Quote(long, 1))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "not in proportion to the text")
}

// TestClean: a message keeps its newlines, and nothing in it can move the cursor or turn text
// around.
func TestClean(t *testing.T) {
	for s, want := range map[string]string{
		"open größe: no\nsecond": "open größe: no\nsecond",
		"a\x1b[31m\r\a":          `a\x1b[31m\r\a`,
		"\u202e\u009b\u2066":     `\u202e\u009b\u2066`,
		"x\xffy":                 `x\xffy`,
		"\xefx":                  `\xefx`,
		"\ufffd":                 "\ufffd",
		"it's \"quoted\" \\":     "it's \"quoted\" \\",
		"\t":                     `\t`,
	} {
		require.Equal(t, want, Clean(s), "%q", s)
	}
}

// TestPrintJSON: JSON with control characters in names is printable, and reads back the same.
func TestPrintJSON(t *testing.T) {
	s := "<a> \x1b \u009b \u202e \U000e0001 größe \u2028 \" \\"
	var b bytes.Buffer
	require.NoError(t, PrintJSON(&b, map[string]string{s: s}))
	require.Contains(t, b.String(), `<a> \u001b \u009b \u202e \udb40\udc01 größe \u2028 \" \\`)
	var back map[string]string
	require.NoError(t, json.Unmarshal(b.Bytes(), &back))
	require.Equal(t, map[string]string{s: s}, back)
	require.True(t, strings.HasSuffix(b.String(), "}\n"))
}

// TestBytes: sizes need a unit, are whole and positive, and fit.
func TestBytes(t *testing.T) {
	for s, want := range map[string]int64{"5GB": 5e9, "512MiB": 512 << 20, "1000B": 1000, "36B": 36, "1.5kB": 1500} {
		n, err := ParseBytes(s)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for _, s := range []string{"", "x", "0", "5", "0B", "-1", "1XB", "99999999999EB"} {
		_, err := ParseBytes(s)
		require.Error(t, err, s)
	}
	require.Equal(t, "9.2 EB", Bytes(math.MaxInt64))
}

// TestState has the text of some moments of a copy, among them more done than was announced.
func TestState(t *testing.T) {
	require.Equal(t, "1 B of 1.0 EB, 0 B/s, 2500000h0m0s left", state(1, 1e18, time.Minute))
	require.Equal(t, "0 B of 10 GB", state(0, 10e9, time.Second))
	require.Equal(t, "1.0 GB of 10 GB", state(1e9, 10e9, 0))
	require.Equal(t, "2.5 GB of 10 GB, 500 MB/s, 15s left", state(25e8, 10e9, 5*time.Second))
	require.Equal(t, "10 GB of 10 GB, 2.0 GB/s, 0s left", state(11e9, 10e9, 5*time.Second))
}

// create returns a new file, and a func for its content while others write to it.
func create(t *testing.T) (f *os.File, content func() string) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f, func() string {
		text, _ := os.ReadFile(f.Name())
		return string(text)
	}
}

// TestProgress requires lines while work lasts, and none after it.
func TestProgress(t *testing.T) {
	t.Setenv("SAFETENSORS_PROGRESS_INTERVAL", "1ms")
	w, content := create(t)
	stop := Progress(w, "cp", 100, func() int64 { return 25 })
	require.Eventually(t, func() bool { return strings.Count(content(), "\n") > 2 }, time.Minute, time.Millisecond)
	stop()
	after := content()
	require.Regexp(t, `^(cp: 25 B of 100 B, \d+ B/s, \d+m?s? left\n)+$`, after)
	require.Equal(t, after, content())

	var short bytes.Buffer
	Progress(&short, "cp", 100, func() int64 { return 25 })()
	require.Empty(t, short.String(), "short work is not shown")
}

// TestBar requires that a bar says what lines say, and ends with the work: nothing of it
// stays on the line.
func TestBar(t *testing.T) {
	w, content := create(t)
	n := int64(0)
	stop := progress(w, "cp", 100, func() int64 { n += 50; return n }, true)
	require.Eventually(t, func() bool { return strings.Contains(content(), "100 B of 100 B") }, time.Minute, time.Millisecond)
	stop()
	text := content()
	require.Contains(t, text, "\rcp [==============================] 100 B of 100 B")
	last := strings.LastIndex(strings.TrimRight(text, " \r"), "\r")
	line := strings.TrimRight(text[last+1:], "\r ")
	require.Regexp(t, `\r +\r$`, text[last:])
	require.GreaterOrEqual(t, strings.Count(text[last+1+len(line):], " "), len(line))
}

// TestInterval: the interval of the environment counts if it is a positive duration.
func TestInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 10 * time.Second, "0s": 10 * time.Second, "-1s": 10 * time.Second, "x": 10 * time.Second, "1": 10 * time.Second, "1ns": 1, "1m": time.Minute,
	} {
		t.Setenv("SAFETENSORS_PROGRESS_INTERVAL", text)
		require.Equal(t, want, interval(), text)
	}
}

// TestBarLine: a line that is as long as the terminal would break.
func TestBarLine(t *testing.T) {
	const state = "25 B of 100 B, 1 B/s, 1m0s left"
	require.Equal(t, "cp [===============               ] "+state, barLine("cp", 0.5, state, 80))
	for columns := range 80 {
		line := barLine("cp", 0.5, state, columns)
		require.Less(t, len(line), max(columns, 1), line)
	}
	require.Equal(t, "cp [==   ] "+state, barLine("cp", 0.5, state, len(state)+12))
	require.Equal(t, "cp [] "+state, barLine("cp", 0.5, state, len(state)+7))
	require.Equal(t, "cp "+state, barLine("cp", 0.5, state, len(state)+6))
	require.Equal(t, "cp "+state, barLine("cp", 0.5, state, len(state)+4))
	require.Equal(t, "cp "+state[:len(state)-1], barLine("cp", 0.5, state, len(state)+3))
	require.Equal(t, "cp [==============================] "+state, barLine("cp", 1.5, state, 200))
	require.Equal(t, 80, columns(new(bytes.Buffer)))
}

// TestBare: the library's prefix goes, of all packages; what only looks like it stays.
func TestBare(t *testing.T) {
	_, err := safetensors.Parse([]byte("x"))
	var broken *safetensors.FormatError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "safetensors: "+Bare(err).Error(), err.Error())
	require.ErrorAs(t, Bare(err), &broken)
	_, err = dcp.Open("absent")
	require.Equal(t, "safetensors: "+Bare(err).Error(), err.Error())
	for _, err := range []error{errors.New("safetensors: of another"), fmt.Errorf("x: %w", err), errors.Join(err, err), fs.ErrClosed} {
		require.Equal(t, err, Bare(err))
	}
}
