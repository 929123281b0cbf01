package torch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/zipfile"
)

// A zipFile is the archive that torch.save has written since PyTorch 1.6. Its members lie in one
// folder: data.pkl, byteorder, and data/KEY for each storage.
type zipFile struct {
	*zipfile.Archive
	anyCase   map[string]*zipfile.Member // members by name in lower case
	folder    string
	bigEndian bool
}

// member returns the member with this name, or nil. A member whose name differs only in case is an
// error, because PyTorch finds it and other readers do not.
func (z *zipFile) member(name string) (*zipfile.Member, error) {
	m := z.anyCase[lowerASCII(name)]
	if m != nil && m.Name != name {
		return nil, fmt.Errorf("zip member %.200q, which PyTorch takes for %.200q", m.Name, name)
	}
	return m, nil
}

// lowerASCII returns s with ASCII letters in lower case.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// locate reads the headers of members concurrently, because each read may be a request.
func (z *zipFile) locate(members ...*zipfile.Member) error {
	return z.Locate(members, func(n int64, f func(i int64) error) error { return parallel.Do(32, n, f) })
}

// pickleName is the end of the name of the member that holds the object.
const pickleName = "/data.pkl"

// newZipFile returns an archive as a zipFile. It finds the folder of the archive's only data.pkl.
func newZipFile(a *zipfile.Archive) (*zipFile, error) {
	z := &zipFile{Archive: a, anyCase: make(map[string]*zipfile.Member, len(a.Members))}
	for _, m := range a.Members {
		lower := lowerASCII(m.Name)
		if other := z.anyCase[lower]; other != nil {
			return nil, fmt.Errorf("zip members %.200q and %.200q, which PyTorch does not distinguish", other.Name, m.Name)
		}
		z.anyCase[lower] = m
		folder, ok := strings.CutSuffix(m.Name, pickleName)
		if !ok || strings.Contains(folder, "/") {
			continue
		}
		if z.folder != "" {
			return nil, fmt.Errorf("a zip archive with two pickles, %.200q and %.200q", z.folder+pickleName, m.Name)
		}
		z.folder = folder
	}
	const longest = 1000 // limit in bytes for the folder's name, because the name of each storage contains it
	switch {
	case z.folder == "":
		return nil, errors.New("a zip archive without data.pkl: not made by torch.save")
	case len(z.folder) > longest:
		return nil, fmt.Errorf("a zip archive whose folder has a name of %d bytes", len(z.folder))
	}
	return z, nil
}

// openZip returns the object in the archive's data.pkl, and the storages.
func openZip(r io.ReaderAt, size int64, s *session) (top any, file storages, err error) {
	a, err := zipfile.Open(r, size)
	if err != nil {
		return nil, nil, err
	}
	z, err := newZipFile(a)
	if err != nil {
		return nil, nil, err
	}
	script, err := z.member(z.folder + "/constants.pkl")
	if err != nil {
		return nil, nil, err
	}
	if script != nil {
		return nil, nil, errors.New("a TorchScript archive, which is a program; load it with torch.jit.load and save its state_dict")
	}
	order, err := z.member(z.folder + "/byteorder")
	if err != nil {
		return nil, nil, err
	}
	content := a.Member(z.folder + pickleName)
	members := []*zipfile.Member{content}
	if order != nil {
		members = append(members, order)
	}
	if err := z.locate(members...); err != nil {
		return nil, nil, err
	}
	if err := z.readByteOrder(order); err != nil {
		return nil, nil, err
	}
	s.start(content.Size)
	top, err = readPickle(content)
	return top, z, err
}

// readPickle reads the pickle in a member, and verifies the checksum of the member.
func readPickle(m *zipfile.Member) (any, error) {
	if m.Size > pickle.MaxSize {
		return nil, fmt.Errorf("a pickle of %d bytes, more than %d", m.Size, pickle.MaxSize)
	}
	content, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	const window = 256 << 10 // each read may be a request
	top, err := newUnpickler(bufio.NewReaderSize(content, int(min(m.Size, window))), m.Size).Load()
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	return top, damaged(err)
}

// readByteOrder reads the byte order from m, the member byteorder. m is nil in files of old
// versions of PyTorch, which did not write this member; these files are little-endian.
func (z *zipFile) readByteOrder(m *zipfile.Member) error {
	if m == nil {
		return nil
	}
	b, err := m.ReadAll(1 << 10)
	z.bigEndian = string(b) == "big"
	if err == nil && !z.bigEndian && string(b) != "little" {
		err = fmt.Errorf("unknown byte order %q", b)
	}
	return err
}

// storage returns the member with the data of a storage.
func (z *zipFile) storage(s *storage) (*zipfile.Member, error) {
	m, err := z.member(z.folder + "/data/" + s.key)
	if err == nil && m == nil {
		err = fmt.Errorf("the archive has no storage %.200q", s.key)
	}
	return m, err
}

// find reads the headers of the storages' members concurrently.
func (z *zipFile) find(used []*storage) error {
	var members []*zipfile.Member
	for _, s := range used {
		if m, err := z.storage(s); err == nil { // otherwise openStorage returns the error, with the name of a tensor
			members = append(members, m)
		}
	}
	return z.locate(members...)
}

// openStorage implements storages.
func (z *zipFile) openStorage(s *storage) (source, error) {
	m, err := z.storage(s)
	if err != nil {
		return source{}, err
	}
	if err := m.CheckUnpack(); err != nil {
		return source{}, fmt.Errorf("storage %.200q: %w", s.key, err)
	}
	content := m.Content(func(bytes int64) error {
		if err := mem.CheckSize(bytes); err != nil {
			return readError{err} // the machine is at fault
		}
		return nil
	})
	if m.Compressed() {
		content = unpacked{content}
	}
	return source{content, m.Size, z.bigEndian, m.Compressed()}, s.check(m.Size)
}

// An unpacked reads the content of a compressed member. It returns an error in the compressed bytes as a
// FormatError.
type unpacked struct{ io.ReaderAt }

func (u unpacked) ReadAt(p []byte, off int64) (int, error) {
	n, err := u.ReaderAt.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = broken("", damaged(err))
	}
	return n, err
}

// damaged returns the error of reading a member. The archive has its end, so that an unexpected end of the
// member does not mean that the file is cut short: the result does not wrap io.ErrUnexpectedEOF, unless err
// comes from the caller's reader.
func damaged(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(readError)) {
		return errors.New(err.Error())
	}
	return err
}
