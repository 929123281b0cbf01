// Package manifest reads and writes lists of SHA-256 sums. The sums of files are in the format of
// sha256sum. The sums of tensors are in lines that sha256sum treats as comments.
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

// A Manifest has the sums of files and of tensors, each in the order of the list. Its fields and
// the fields of an Entry are also the JSON that hash prints, without tensors if Tensors is nil.
type Manifest struct {
	Files   []Entry `json:"files"`
	Tensors []Entry `json:"tensors,omitzero"`
}

// An Entry is a name and its sum. The sum of a tensor covers its dtype and shape, as Tensor.String
// formats them, then a newline, then its bytes.
type Entry struct {
	Name  string            `json:"name"`
	DType safetensors.DType `json:"dtype,omitzero"` // dtype of a tensor; Read sets Type instead
	Shape []int             `json:"shape,omitzero"`
	Sum   Sum               `json:"sha256"`
	Type  string            `json:"-"` // dtype and shape of a tensor: "BF16 [2,3]"
}

// Write writes a manifest. A name of a file with control characters is an error, because sha256sum
// has no escapes for them, and a terminal would obey them.
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

// escape escapes a file name in the way of sha256sum, which marks the line of such a name with a
// backslash.
var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)

var unescape = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r")

// maxLine is the largest length in bytes of a line. It limits the memory, since a file that is not
// a manifest may consist of one long line.
const maxLine = 1 << 20

// Read reads a manifest, or the output of sha256sum, also of sha256sum --tag.
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
	if tagged, is := strings.CutPrefix(rest, "SHA256 ("); is { // sha256sum --tag writes SHA256 (NAME) = SUM
		end := max(0, strings.LastIndex(tagged, ") = "))
		name, sum = " "+tagged[:end], strings.TrimPrefix(tagged[end:], ") = ")
	}
	if !ok || len(name) < 2 || name[0] != ' ' && name[0] != '*' {
		return errors.New("expected a SHA-256 sum, two spaces and a name")
	}
	e := Entry{Name: name[1:]}
	if escaped {
		e.Name = unescape.Replace(e.Name)
	}
	e.Name = strings.TrimPrefix(e.Name, "./") // find prints names with "./" for sha256sum
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
