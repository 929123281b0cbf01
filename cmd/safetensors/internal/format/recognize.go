package format

import (
	"io"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/bintensors"
	"github.com/gosafetensors/safetensors/internal/zipfile"
)

// isSafetensors: a file starts with a header length below 2^27, and a brace, perhaps after
// white space.
func isSafetensors(r io.ReaderAt, size int64) bool {
	head := head(r, size, 9)
	return len(head) == 9 && strings.ContainsRune("{ \t\r\n", rune(head[8])) && head[3] < 8 && string(head[4:8]) == "\x00\x00\x00\x00"
}

func isBintensors(r io.ReaderAt, size int64) bool { return bintensors.Sniff(head(r, size, 9)) }

// isTorch: torch.save writes a zip archive; before PyTorch 1.6 it wrote pickles, of
// protocols 2 to 5.
func isTorch(r io.ReaderAt, size int64) bool {
	for _, start := range []string{"\x80\x02", "\x80\x03", "\x80\x04", "\x80\x05"} {
		if starts(r, size, start) {
			return true
		}
	}
	return hasMember(r, size, "data.pkl")
}

// hasMember reports whether a file is a zip archive with a member whose name ends in
// suffix.
func hasMember(r io.ReaderAt, size int64, suffix string) bool {
	return starts(r, size, "PK") && zipfile.Holds(r, size, suffix)
}

// starts reports whether a file starts with a text.
func starts(r io.ReaderAt, size int64, text string) bool {
	return string(head(r, size, len(text))) == text
}

// head returns the first n bytes of a file, or all if it has fewer.
func head(r io.ReaderAt, size int64, n int) []byte {
	b := make([]byte, min(int64(n), size))
	n, _ = r.ReadAt(b, 0)
	return b[:n]
}
