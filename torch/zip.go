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

// A zipFile is the archive that torch.save has written since PyTorch 1.6. Its members
// are in one folder: data.pkl, byteorder, and data/KEY for each storage.
type zipFile struct {
	*zipfile.Archive
	folder    string
	bigEndian bool
}

// openZip returns the content of data.pkl.
func openZip(r io.ReaderAt, size int64) (top any, file storages, err error) {
	const name = "/data.pkl"
	a, err := zipfile.Open(r, size, func(n int64, f func(i int64) error) error { return parallel.Do(32, n, f) })
	if err != nil {
		return nil, nil, err
	}
	z := &zipFile{Archive: a}
	for _, m := range a.Members {
		folder, ok := strings.CutSuffix(m.Name, name)
		if !ok || strings.Contains(folder, "/") {
			continue
		}
		if z.folder != "" {
			return nil, nil, fmt.Errorf("a zip archive with two pickles, %.200q and %.200q", z.folder+name, m.Name)
		}
		z.folder = folder
	}
	switch {
	case z.folder == "":
		return nil, nil, errors.New("a zip archive without data.pkl: not made by torch.save")
	case a.Member(z.folder+"/constants.pkl") != nil:
		return nil, nil, errors.New("a TorchScript archive, which is a program; load it with torch.jit.load and save its state_dict")
	}
	if err := z.readByteOrder(); err != nil {
		return nil, nil, err
	}
	top, err = readPickle(a.Member(z.folder + name))
	return top, z.data, err
}

// readPickle reads the pickle of a member, and verifies its checksum.
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
	return top, err
}

// readByteOrder: files of old versions do not say, and are little-endian.
func (z *zipFile) readByteOrder() error {
	m := z.Member(z.folder + "/byteorder")
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

func (z *zipFile) data(s *storage) (source, error) {
	m := z.Member(z.folder + "/data/" + s.key)
	if m == nil {
		return source{}, fmt.Errorf("the archive has no storage %.200q", s.key)
	}
	if err := m.CheckUnpack(); err != nil {
		return source{}, fmt.Errorf("storage %.200q: %w", s.key, err)
	}
	return source{m.Content(mem.CheckSize), m.Size, z.bigEndian, m.Compressed()}, s.check(m.Size)
}
