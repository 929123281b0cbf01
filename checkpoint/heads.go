package checkpoint

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/torch"
)

// open opens a file with weights. The caller must call done when it no longer needs the file.
func (c *checker) open(name string) (f *safetensors.File, done func() error, err error) {
	return c.openTelling(name, func(string, error) {})
}

// openTelling is like open, and calls skip as torch.Opener does.
func (c *checker) openTelling(name string, skip func(string, error)) (f *safetensors.File, done func() error, err error) {
	file, size, err := osfile.OpenFS(c.in.FS, c.path(name)) // safetensors.OpenFS would first check whether it is a directory
	if err != nil {
		return nil, nil, err
	}
	switch r, ok := file.(io.ReaderAt); {
	case isTorch(name) && ok:
		f, err = openTorch(r, size, skip)
	case isTorch(name):
		f, err = torch.Opener{Skip: skip}.OpenFS(c.in.FS, c.path(name))
	case ok:
		f, err = safetensors.NewFile(r, size)
	default:
		f, err = safetensors.Read(file)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return f, file.Close, nil
}

// openTorch opens a file of torch.save, and calls skip as torch.Opener does. Unless a read fails, an error is a verdict on the content: see isVerdict.
func openTorch(r io.ReaderAt, size int64, skip func(string, error)) (*safetensors.File, error) {
	w := &watched{ReaderAt: r}
	var from io.ReaderAt = w
	if ranges, ok := r.(safetensors.RangeReader); ok {
		from = watchedRanges{w, ranges}
	}
	f, err := torch.Opener{Skip: skip}.NewFile(from, size)
	if err != nil && !w.failed.Load() && !isVerdict(err) {
		err = &textError{"torch.save", prefix.Strip(err)}
	}
	return f, err
}

// A watched is a reader that records whether a read has failed.
type watched struct {
	io.ReaderAt
	failed atomic.Bool
}

func (w *watched) ReadAt(p []byte, off int64) (int, error) {
	n, err := w.ReaderAt.ReadAt(p, off)
	if err != nil && err != io.EOF {
		w.failed.Store(true)
	}
	return n, err
}

type watchedRanges struct {
	*watched
	ranges safetensors.RangeReader
}

func (w watchedRanges) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	err := w.ranges.ReadRanges(ranges)
	if err != nil {
		w.failed.Store(true)
	}
	return err
}

// filesAtOnce is the number of headers that are read concurrently.
const filesAtOnce = 8

// readHeads reads the headers of files that were not read before. A file that is not of the format that
// its name indicates becomes a finding, and has no head.
func (c *checker) readHeads(names []string) error {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return c.seen[name] })
	slices.Sort(names)
	names = slices.Compact(names)
	heads := make([]*head, len(names))
	errs := make([]error, len(names))
	err := parallel.Do(filesAtOnce, int64(len(names)), func(i int64) error {
		heads[i], errs[i] = c.readHead(names[i])
		if errs[i] != nil && !isVerdict(errs[i]) {
			return errs[i]
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, name := range names {
		c.seen[name] = true
		if errs[i] != nil {
			if !ofAnother(name, errs[i]) {
				c.unreadable(name, errs[i])
			}
			continue
		}
		c.heads[name] = heads[i]
	}
	return nil
}

// ofAnother reports whether a file in a subdirectory was made by another program, according to err, and no library
// opens a file with that name there. Examples are metal/model.bin of gpt-oss, and mp_rank_00_model_states.pt of
// DeepSpeed, which may have no tensors.
func ofAnother(name string, err error) bool {
	base := path.Base(name)
	ending := path.Ext(base)
	if !isTorch(base) || !strings.Contains(name, "/") {
		return false
	}
	if ending == ".bin" && slices.Contains(modelStems, strings.TrimSuffix(base, ending)) {
		return false
	}
	return errors.As(err, new(prefix.Foreign)) || slices.ContainsFunc(foreign, func(f foreignFormat) bool { return f.match(base) })
}

func (c *checker) readHead(name string) (*head, error) {
	refused := make(map[string]bool)
	f, done, err := c.openTelling(name, func(name string, _ error) { refused[strings.Clone(name)] = true })
	if err != nil {
		return nil, err
	}
	defer done()
	h := &head{tensors: make(map[string]info, f.Len()), metadata: f.Metadata(), refused: refused}
	for name, t := range f.Tensors() {
		h.tensors[strings.Clone(name)] = info{t.DType(), t.Shape()}
	}
	return h, nil
}

// isVerdict reports whether an error is about the content of a file. Other errors, such as those of a
// network, leave the content unknown.
func isVerdict(err error) bool {
	var broken *safetensors.FormatError
	return errors.As(err, &broken) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist) ||
		errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errTooLong) || isText(err)
}

func isText(err error) bool {
	var text *textError
	var link *linkError
	return errors.As(err, &text) || errors.As(err, &link)
}

// isFloat reports whether elements of a dtype are plain floats, as in the weights of a model that is not quantised.
func isFloat(d safetensors.DType) bool {
	switch d {
	case safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16:
		return true
	}
	return false
}
