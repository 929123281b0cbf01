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
	return osfile.Save(name, func(a *osfile.Atomic) error { return write(io.NewOffsetWriter(a, 0)) })
}

// rename gives a file its name, and flushes that to the disk.
func rename(temp, name string) error {
	return inFolder(filepath.Dir(name), func() error { return os.Rename(temp, name) })
}

// inFolder has name give a file in a folder its name, and flushes the folder. It opens that
// first, so that an error leaves the old file.
func inFolder(folder string, name func() error) error {
	dir, err := osfile.OpenDir(folder)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := name(); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("it has its new name, but a crash may undo that: %w", err)
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
