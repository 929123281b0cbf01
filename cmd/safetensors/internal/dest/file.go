package dest

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A stream writes to standard output.
type stream struct{ w io.Writer }

func (s stream) Free() error { return nil }

func (s stream) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	return calling(last, func(w io.Writer) error { return safetensors.Write(w, tensors, metadata) })(s.w)
}

func (s stream) Copy(of Shard, last func() error) error { return calling(last, of.CopyTo)(s.w) }

// calling returns a func that calls write, and then last, if it is not nil.
func calling(last func() error, write func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		err := write(w)
		if err == nil && last != nil {
			err = last()
		}
		return err
	}
}

// A single writes one file.
type single struct {
	name   string
	format *format.Format
	align  int
}

func (s single) Free() error {
	if err := checkCache(filepath.Dir(s.name)); err != nil {
		return err
	}
	_, err := os.Lstat(s.name)
	if dir := filepath.Dir(s.name); errors.Is(err, fs.ErrNotExist) {
		if _, noDir := os.Stat(dir); errors.Is(noDir, fs.ErrNotExist) {
			return fmt.Errorf("create %s: the folder %s does not exist", term.Name(s.name), term.Name(dir))
		}
	}
	return checkReplaceable(s.name, err)
}

// checkReplaceable is like checkAbsent for a local file. If the file cannot be replaced, such as a link to nothing, it returns
// the reason.
func checkReplaceable(name string, err error) error {
	if err == nil {
		if _, fixed := Replaced(name); fixed != nil {
			return fixed
		}
		if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
			return fmt.Errorf("%s is a folder, and no file can replace it", term.Name(name))
		}
	}
	return checkAbsent(name, err)
}

// checkAbsent returns an error unless err, the result of looking for the file with this name, means
// that the file does not exist.
func checkAbsent(name string, err error) error {
	if err == nil {
		err = fmt.Errorf("%s exists; --force replaces it", term.Name(name))
	}
	return ignoreAbsent(err)
}

func (s single) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	if s.format == format.Safetensors { // safetensors.WriteFile is faster than format.Write, because it uses several goroutines
		name, err := Replaced(s.name)
		if err != nil {
			return err
		}
		return safetensors.Saver{Align: s.align, Check: last}.WriteFile(name, tensors, metadata)
	}
	return WriteFile(s.name, calling(last, func(w io.Writer) error { return s.format.Write(w, tensors, metadata) }))
}

func (s single) Copy(of Shard, last func() error) error {
	name, err := Replaced(s.name)
	if err != nil {
		return err
	}
	return copyFile(name, osfile.Settings{Check: last}, of)
}

// copyFile writes the bytes of a shard to a new file. It reserves the space for the file first, as
// safetensors.WriteFile does.
func copyFile(name string, settings osfile.Settings, of Shard) error {
	return settings.Save(name, func(a *osfile.Atomic) error {
		if err := a.Reserve(max(of.Size, 0)); err != nil {
			return err
		}
		const block = 1 << 20
		w := bufio.NewWriterSize(io.NewOffsetWriter(a, 0), block)
		return cmp.Or(of.CopyTo(w), w.Flush())
	})
}

// WriteFile calls write to write a new file, which gets its name only when it is complete and
// flushed to the disk. It is like safetensors.WriteFile, but for other formats, and it keeps a
// symbolic link: see Replaced.
func WriteFile(name string, write func(io.Writer) error) error {
	name, err := Replaced(name)
	if err != nil {
		return err
	}
	return osfile.Save(name, func(a *osfile.Atomic) error { return write(io.NewOffsetWriter(a, 0)) })
}

// Replaced returns the name of the file that a new file replaces if it is written to name. If name is a
// symbolic link, that is the target of the link: the link stays, as with cp of Unix. Otherwise it is
// name. A link is an error if its target is missing, is not a regular file, such as a device, or is in the
// cache of a hub: the name of a blob is the sum of its content, on which other programs rely. A name in the
// cache of a hub is an error, too.
func Replaced(name string) (string, error) {
	if err := checkCache(filepath.Dir(name)); err != nil {
		return "", err
	}
	info, err := os.Lstat(name)
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return name, nil // creating the file returns the error of Lstat again, if it matters
	}
	if link, err := os.Readlink(name); err == nil && osfile.IsBlob(filepath.ToSlash(link)) || isCached(name) {
		return "", fmt.Errorf("%s is a link to a file in the cache of a hub, which must not change: write to another file, or remove the link", term.Name(name))
	}
	target, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is a symbolic link to a file that does not exist: remove the link, or name the file", term.Name(name))
	}
	if err == nil {
		info, err = os.Stat(target)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is a symbolic link to %s, which is not a regular file", term.Name(name), term.Name(target))
	}
	return target, err
}

// Writing returns a func that writes data to its argument.
func Writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// rename gives a temporary file its final name, and flushes the folder.
func rename(temp, name string) error {
	return osfile.Named(name, func() error { return osfile.Rename(temp, name) })
}

// File returns the safetensors file called name as a destination.
func File(name string) Destination { return single{name: name, format: format.Safetensors} }
