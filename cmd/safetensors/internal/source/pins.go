package source

import (
	"fmt"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// Pins returns the files of a source, and those next to it that were read or listed so
// far. It is an error if the source can change without notice.
func (c *Checkpoint) Pins() ([]storage.Pin, error) {
	pins := c.pins
	switch {
	case c.parts != nil:
		for i, part := range c.parts {
			more, err := part.Pins()
			if err != nil {
				return nil, err
			}
			for _, p := range more {
				if i > 0 {
					p.Name = fmt.Sprintf("%d:%s", i+1, p.Name)
				}
				pins = append(pins, p)
			}
		}
	case pins == nil:
		for _, f := range c.Files {
			pins = append(pins, storage.Pin{Name: f.Name, Size: f.Size, Tag: f.Tag})
		}
		pins = append(pins, c.Folder.Pinned()...)
	}
	for _, p := range pins {
		if p.Tag == "" {
			return nil, fmt.Errorf("%s: nothing tells whether %s changes: it has no ETag and no time", storage.Shown(c.Name), term.Name(p.Name))
		}
	}
	return pins, nil
}

// Unchanged returns an error if a local file is no longer what it was when the source
// was opened. Objects of a bucket need no look: each answer says what it is of.
func (c *Checkpoint) Unchanged() error {
	for _, part := range c.parts {
		if err := part.Unchanged(); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		if err := f.Unchanged(); err != nil {
			return fmt.Errorf("%s: %w", storage.Shown(c.Name), err)
		}
	}
	return nil
}
