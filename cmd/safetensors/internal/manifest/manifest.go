// Package manifest reads and writes lists of SHA-256 sums: of files, as sha256sum
// reads and writes them, and of tensors, in lines that are comments to sha256sum.
package manifest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/gosafetensors/safetensors"
)

// A Sum is a SHA-256 sum.
type Sum [32]byte

func (s Sum) String() string { return hex.EncodeToString(s[:]) }

func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Manifest is the sums of files and of tensors, each in its order. Its fields, and those of an
// Entry, are those of the JSON of hash.
type Manifest struct {
	Files   []Entry `json:"files"`
	Tensors []Entry `json:"tensors,omitempty"`
}

// An Entry is a name and its sum. The sum of a tensor is that of its dtype and shape,
// as Tensor.String has them, a newline and its bytes.
type Entry struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype,omitzero"` // of a tensor; Read sets only Type
	Shape []int             `json:"shape,omitzero"`
	Sum   Sum               `json:"sha256"`
	Type  string            `json:"-"` // of a tensor: "BF16 [2,3]"
}

// Write writes a manifest. It refuses the names of files that a terminal would obey: sha256sum
// has no escapes for them.
func (m *Manifest) Write(w io.Writer) error {
	for _, e := range m.Files {
		if strings.ContainsFunc(e.Name, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\n\r", r) }) {
			return fmt.Errorf("the file name %q has control characters, which a list of sums would not escape", e.Name)
		}
	}
	b := bufio.NewWriter(w)
	for _, e := range m.Files {
		name := escape.Replace(e.Name)
		if name != e.Name {
			b.WriteByte('\\')
		}
		fmt.Fprintf(b, "%v  %s\n", e.Sum, name)
	}
	for _, e := range m.Tensors {
		fmt.Fprintf(b, "# tensor %v %s %s\n", e.Sum, strconv.QuoteToASCII(e.Name), e.Type)
	}
	return b.Flush()
}

// escape escapes a file name as sha256sum does, which marks such a line with a
// backslash.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

var unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")

// maxLine bounds the memory for a line: of a file that is no manifest, it may be all.
const maxLine = 1 << 20

// Read reads a manifest, or the output of sha256sum.
func Read(r io.Reader) (*Manifest, error) {
	m := new(Manifest)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	n := 1
	for ; lines.Scan(); n++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		var err error
		switch text, tensor := strings.CutPrefix(line, "# tensor "); {
		case tensor:
			err = m.tensor(text)
		case line == "", strings.HasPrefix(line, "#"):
		default:
			err = m.file(line)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("line %d: longer than %d bytes", n, maxLine)
	}
	return m, lines.Err()
}

func (m *Manifest) file(line string) error {
	rest, escaped := strings.CutPrefix(line, `\`)
	sum, name, ok := strings.Cut(rest, " ")
	if !ok || len(name) < 2 || name[0] != ' ' && name[0] != '*' {
		return errors.New("expected a SHA-256 sum, two spaces and a name")
	}
	e := Entry{Name: name[1:]}
	if escaped {
		e.Name = unescape.Replace(e.Name)
	}
	e.Name = strings.TrimPrefix(e.Name, "./") // as find spells names for sha256sum
	m.Files = append(m.Files, e)
	return m.Files[len(m.Files)-1].parse(sum)
}

func (m *Manifest) tensor(text string) error {
	sum, rest, _ := strings.Cut(text, " ")
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return errors.New("expected a SHA-256 sum, a quoted name, a dtype and a shape")
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return err
	}
	m.Tensors = append(m.Tensors, Entry{Name: name, Type: strings.TrimPrefix(rest[len(quoted):], " ")})
	return m.Tensors[len(m.Tensors)-1].parse(sum)
}

func (e *Entry) parse(sum string) error {
	n, err := hex.Decode(e.Sum[:], []byte(sum[:min(len(sum), 64)]))
	if err != nil || n != len(e.Sum) || len(sum) != 64 {
		return fmt.Errorf("%.80q is not a SHA-256 sum", sum)
	}
	return nil
}
