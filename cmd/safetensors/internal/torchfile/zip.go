package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/zipfile"
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
	const pickle = "/data.pkl"
	a, err := zipfile.Open(r, size)
	if err != nil {
		return nil, nil, err
	}
	z := &zipFile{Archive: a}
	for _, m := range a.Members {
		folder, ok := strings.CutSuffix(m.Name, pickle)
		if !ok || strings.Contains(folder, "/") {
			continue
		}
		if z.folder != "" {
			return nil, nil, fmt.Errorf("a zip archive with two pickles, %.200q and %.200q", z.folder+pickle, m.Name)
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
	b, err := a.Member(z.folder + pickle).ReadAll(maxPickle)
	if err != nil {
		return nil, nil, err
	}
	u := newUnpickler(bytes.NewReader(b), int64(len(b)))
	u.class, u.reduce, u.persistent = allow, reduce, persistent
	top, err = u.load()
	return top, z, err
}

// readByteOrder: files of old versions do not say, and are little-endian.
func (z *zipFile) readByteOrder() error {
	m := z.Member(z.folder + "/byteorder")
	if m == nil {
		return nil
	}
	b, err := m.ReadAll(1 << 10)
	switch {
	case err != nil:
		return err
	case string(b) != "little" && string(b) != "big":
		return fmt.Errorf("unknown byte order %q", b)
	}
	z.bigEndian = string(b) == "big"
	return nil
}

func (z *zipFile) tensor(s *storage, layOut layOut) (safetensors.Tensor, error) {
	m := z.Member(z.folder + "/data/" + s.key)
	if m == nil {
		return safetensors.Tensor{}, fmt.Errorf("the archive has no storage %.200q", s.key)
	}
	if err := s.check(m.Size); err != nil {
		return safetensors.Tensor{}, err
	}
	return m.Tensor(func(r io.ReaderAt) (safetensors.Tensor, error) { return layOut(r, m.Size, z.bigEndian) })
}
