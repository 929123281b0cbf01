package dest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors/internal/osfile"
)

// WriteFile has write write a new file, which takes its name only when it is complete
// and flushed to the disk: what safetensors.WriteFile does, for other formats.
func WriteFile(name string, write func(io.Writer) error) error {
	a, err := osfile.Create(name)
	if err != nil {
		return err
	}
	defer a.Abort()
	if err := write(io.NewOffsetWriter(a, 0)); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := a.Finish(); err != nil {
		return err
	}
	return a.Commit()
}

// rename gives a file its name and flushes the folder. It opens the folder first, so
// that an error of that leaves the old file.
func rename(temp, name string) error {
	dir, err := osfile.OpenDir(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("it was replaced, but may be the old file after a crash: %w", err)
	}
	return nil
}

// Writing returns a func that writes data.
func Writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// flush flushes the names in a folder to the disk.
func flush(name string) error {
	dir, err := osfile.OpenDir(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
