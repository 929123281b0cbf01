package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
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

// difference returns the first of these tensors, which both places have, whose shape or numbers differ between the
// places, and the reason. It returns "" if there is none. It ignores buffers, which models compute, and reads data only
// of tensors whose dtypes and shapes allow equal numbers.
func (c *checker) difference(a, b place, names []string) (tensor, why string, err error) {
	slices.Sort(names)
	pairs, others := make(map[[2]string][]string), make(map[[2]string][]string)
	for _, name := range names {
		if isBuffer(name) {
			continue
		}
		inA, inB := a.find(name), b.find(name)
		first, second := c.heads[a[inA]].tensors[inA], c.heads[b[inB]].tensors[inB]
		if !slices.Equal(first.shape, second.shape) || first.dtype != second.dtype && !(isFloat(first.dtype) && isFloat(second.dtype)) {
			return name, fmt.Sprintf("%v in one, %v in the other", first, second), nil
		}
		if key := [2]string{a[inA], b[inB]}; key[0] != key[1] {
			pairs[key], others[key] = append(pairs[key], inA), append(others[key], inB)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(pairs), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		differing, err := c.compareFiles(key[0], key[1], pairs[key], others[key], 1)
		if err != nil {
			return "", "", err
		}
		if len(differing) > 0 {
			return differing[0], "other numbers", nil
		}
	}
	return "", "", nil
}

// compareFiles compares tensors of two files: names[i] of the first with others[i] of the second. It returns the
// names, up to the limit most, of tensors whose numbers differ. It opens each file once.
func (c *checker) compareFiles(first, second string, names, others []string, most int) (differing []string, err error) {
	a, closeFirst, err := c.open(first)
	if err != nil {
		return nil, err
	}
	defer closeFirst()
	b, closeSecond, err := c.open(second)
	if err != nil {
		return nil, err
	}
	defer closeSecond()
	for i, name := range names {
		x, err := a.Tensor(name)
		if err != nil {
			return nil, changed(first, err)
		}
		y, err := b.Tensor(others[i])
		if err != nil {
			return nil, changed(second, err)
		}
		equal, err := equalNumbers(x, y)
		if err != nil {
			return nil, err
		}
		if !equal {
			if differing = append(differing, name); len(differing) == most {
				break
			}
		}
	}
	return differing, nil
}

// changed returns the error for a file that has lost a tensor since its header was read.
func changed(name string, err error) error {
	return fmt.Errorf("%s has changed while it was checked: %w", quoted(name), err)
}

// equalNumbers reports whether two tensors have the same numbers, whatever floats they are stored
// as.
func equalNumbers(x, y safetensors.Tensor) (bool, error) {
	if x.DType() != y.DType() {
		wide := safetensors.F32
		if x.DType() == safetensors.F64 || y.DType() == safetensors.F64 {
			wide = safetensors.F64
		}
		var err error
		if x, err = x.Convert(wide); err != nil {
			return false, err
		}
		if y, err = y.Convert(wide); err != nil {
			return false, err
		}
	}
	return safetensors.Equal(x, y)
}

func isFloat(d safetensors.DType) bool {
	switch d {
	case safetensors.F64, safetensors.F32, safetensors.F16, safetensors.BF16:
		return true
	}
	return false
}

// readText reads and parses a text file of the directory. found is false if there is none. It is also false
// if the file cannot be read or parsed; then readText notes a finding.
func (d *directory) readText(name string, parse func(text []byte) error) (found bool, err error) {
	if !d.has(name) || d.modes[name].IsDir() {
		return false, nil
	}
	text, err := readText(d.in, d.path(d.at(name)), maxConfig)
	if err == nil {
		if err = parse(text); err == nil {
			d.judgeKeys(name, text)
			return true, nil
		}
	} else if !isVerdict(err) {
		return false, err
	}
	d.unreadable(d.at(name), err)
	return false, nil
}

// judgeKeys notes a key that a config has twice with different values. Python takes the last one, and other programs
// refuse such a config.
func (d *directory) judgeKeys(name string, text []byte) {
	if key := repeatedKey(text); key != "" {
		d.note(Config, "", fmt.Sprintf("%s has the key %s twice with different values: Python takes the last one, and other programs refuse the file", quoted(d.at(name)), quoted(key)), d.at(name))
	}
}
