package dest

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Source is a remote file that a shard copies. If a copy to a folder of this machine is interrupted, the
// bytes that have arrived stay in a partial file, under a temporary name. The next copy of the same content
// continues the partial file.
type Source struct {
	// Content identifies the content of the file: a file that changes gets another Content.
	Content string

	// CopyFrom writes the bytes of the file from offset off to its end.
	CopyFrom func(w io.Writer, off int64) error

	// NewHash returns a hash of the kind that the hub lists for the file, and Matches reports whether a sum
	// equals the listed one. Both are nil if no sum is listed.
	NewHash func() hash.Hash
	Matches func(sum []byte) bool
}

const (
	partialTag = "part-" // tag in the temporary names of partial files

	// leastPartial is the smallest size in bytes of a partial file that stays after an error.
	leastPartial = 1 << 20

	// noteEvery is the number of bytes after which the note of a partial file is written again, because the
	// process may be killed.
	noteEvery = 16 << 20
)

// errOther reports that a continued copy does not have the sum that the hub lists.
var errOther = errors.New("it does not have the sum that the hub lists")

// partialName returns the name of the partial file of a shard.
func partialName(name string, s Shard) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %q", name, s.Size, s.Source.Content))
	return fmt.Sprintf("%s%s%x.tmp", osfile.TempPrefix, partialTag, sum[:16])
}

// partials returns the names of the partial files of the shards of a Set.
func (s *Set) partials() (names []string) {
	for name, shard := range s.Shards {
		if shard.Source != nil {
			names = append(names, partialName(name, shard))
		}
	}
	return names
}

// sweepPartials removes the partial files in a folder and their notes, except the files listed in keep and their
// notes.
func (f folder) sweepPartials(keep []string) {
	entries, err := osfile.ReadDir(f.name)
	if err != nil {
		return
	}
	kept := make(map[string]bool)
	for _, name := range keep {
		kept[name], kept[name+".note.tmp"] = true, true
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, osfile.TempPrefix+partialTag) && strings.HasSuffix(name, ".tmp") && !kept[name] {
			osfile.Remove(filepath.Join(f.name, name))
		}
	}
}

// A note records how many bytes of a partial file are good, and their SHA-256. The sum is needed because after a
// crash of the system, a file may have the right size, but not the right content.
type note struct {
	Size int64
	Sum  []byte
}

// A partial is a partial file that is being written.
type partial struct {
	file   *os.File
	notes  string    // name of the file with its note
	sum    hash.Hash // SHA-256 of all bytes
	listed hash.Hash // hash of the kind that the hub lists, or nil
	size   int64
	noted  int64 // size in the last note
}

// openPartial opens or creates a partial file for writing after its good bytes. If the name belongs to a link, a
// pipe or anything else that is not a regular file, openPartial removes that first.
func openPartial(name string, s *Source) (*partial, error) {
	p := &partial{notes: name + ".note.tmp"}
	for _, name := range []string{name, p.notes} {
		if info, err := os.Lstat(name); err == nil && !info.Mode().IsRegular() {
			if err := os.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	p.file = file
	p.reset(s)
	if n := readNote(p.notes); n.Size > 0 {
		copied, err := io.CopyN(io.MultiWriter(p.hashes()...), file, n.Size)
		if err != nil || !bytes.Equal(p.sum.Sum(nil), n.Sum) {
			p.reset(s)
		} else {
			p.size, p.noted = copied, copied
		}
	}
	if err := file.Truncate(p.size); err != nil {
		file.Close()
		return nil, err
	}
	if _, err := file.Seek(p.size, io.SeekStart); err != nil {
		file.Close()
		return nil, err
	}
	return p, nil
}

// readNote returns the note in a file, or a zero note if the file does not contain a complete one.
func readNote(name string) (n note) {
	text, err := osfile.ReadRegular(name, 1000)
	if err != nil || json.Unmarshal(text, &n) != nil {
		return note{}
	}
	return n
}

// reset makes p a partial file without good bytes.
func (p *partial) reset(s *Source) {
	p.sum, p.listed, p.size, p.noted = sha256.New(), nil, 0, 0
	if s.NewHash != nil {
		p.listed = s.NewHash()
	}
}

// hashes returns the hashes that every byte of the file goes through.
func (p *partial) hashes() []io.Writer {
	if p.listed == nil {
		return []io.Writer{p.sum}
	}
	return []io.Writer{p.sum, p.listed}
}

func (p *partial) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	for _, h := range p.hashes() {
		h.Write(data[:n])
	}
	p.size += int64(n)
	if err == nil && p.size-p.noted >= noteEvery {
		err = p.note()
	}
	return n, err
}

// note writes the note of the file. A process that is killed meanwhile leaves an incomplete note, which readNote
// ignores.
func (p *partial) note() error {
	text, err := json.Marshal(note{p.size, p.sum.Sum(nil)})
	if err == nil {
		err = os.WriteFile(p.notes, text, 0o666)
	}
	p.noted = p.size
	return err
}

// writeFrom copies a remote file to its partial file, and returns the name of the partial file. If there is an
// earlier copy, it continues that.
func (f folder) writeFrom(name string, s Shard) (temp string, err error) {
	temp = filepath.Join(f.name, partialName(name, s))
	err = goOn(temp, s.Source)
	if errors.Is(err, errOther) { // the earlier copy was damaged, and is gone now
		err = goOn(temp, s.Source)
	}
	return temp, err
}

// goOn completes a partial file. After an error the file stays, with a note, if it has at least leastPartial
// bytes.
func goOn(name string, s *Source) error {
	p, err := openPartial(name, s)
	if err != nil {
		return err
	}
	from := p.size
	err = s.CopyFrom(p, from)
	if err != nil && p.size >= leastPartial {
		return cmp.Or(errors.Join(err, p.note()), p.file.Close())
	}
	if err == nil && from > 0 && p.listed != nil && !s.Matches(p.listed.Sum(nil)) {
		err = errOther
	}
	if err == nil {
		err = osfile.Flush(p.file)
	}
	err = cmp.Or(err, p.file.Close())
	os.Remove(p.notes)
	if err != nil {
		os.Remove(name)
	}
	return err
}

// writeResumable is WriteShard for a copy of a remote file.
func (f folder) writeResumable(name, path string, s Shard, last func() error) error {
	temp, err := f.writeFrom(name, s)
	if err == nil && last != nil {
		if err = last(); err != nil {
			os.Remove(temp)
		}
	}
	if err == nil {
		if err = rename(temp, path); err != nil {
			os.Remove(temp)
		}
	}
	if err != nil {
		return osfile.Writing(path, term.Bare(err))
	}
	return nil
}
