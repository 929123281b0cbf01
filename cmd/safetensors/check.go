package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) check() *cobra.Command {
	var asJSON bool
	cmd := c.verb("check SRC... [--json]", "Say whether files obey the rules of the format", `
Of a file that does not, it prints the tensor, the rule and the place. Of a folder
it checks every .safetensors file and every index. The exit code is 1 if one is
refused.

--json prints one line for each file:
  {"file": "...", "ok": true, "tensors": 12, "bytes": 4096}
  {"file": "...", "ok": false, "reason": "...", "tensor": "..." if one is at fault,
   "offset": its place in the file, if known}
`+sources, `
safetensors check model.safetensors
safetensors check downloads/*
`, cobra.MinimumNArgs(1), func(args []string) error {
		return c.checkAll(args, asJSON)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each file")
	return cmd
}

// A verdict is what check found out about a file. Its fields are those of the JSON
// form.
type verdict struct {
	File    string `json:"file"`
	OK      bool   `json:"ok"`
	Tensors *int   `json:"tensors,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Tensor  string `json:"tensor,omitempty"`
	Offset  *int64 `json:"offset,omitempty"`
}

func (c *command) checkAll(names []string, asJSON bool) error {
	refused := false
	for _, name := range names {
		files, err := filesOf(name)
		if err != nil {
			return err
		}
		for _, file := range files {
			v := c.verdict(file)
			if c.ctx.Err() != nil {
				return errInterrupted
			}
			refused = refused || !v.OK
			if err := c.printVerdict(v, asJSON); err != nil {
				return err
			}
		}
	}
	if refused {
		return errDifferent
	}
	return nil
}

// filesOf returns the files to check: those of a folder, or the source itself.
func filesOf(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil || !info.IsDir() {
		return []string{name}, nil // a URL, -, or what cannot be opened, which is its verdict then
	}
	var files []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && (strings.HasSuffix(path, ".safetensors") || strings.HasSuffix(path, ".safetensors.index.json")) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .safetensors file in it", term.Name(name))
	}
	slices.Sort(files)
	return files, nil
}

func (c *command) verdict(name string) verdict {
	src, err := c.opener.Open(name)
	if err != nil {
		v := verdict{File: name, Reason: strings.TrimPrefix(err.Error(), source.Shown(name)+": ")}
		var broken *safetensors.FormatError
		if errors.As(err, &broken) {
			v.Reason, v.Tensor = broken.Reason, broken.Tensor
			if broken.Offset >= 0 {
				v.Offset = &broken.Offset
			}
		}
		return v
	}
	defer src.Close()
	n, size := len(src.Tensors), src.Size()
	return verdict{File: name, OK: true, Tensors: &n, Bytes: &size}
}

func (c *command) printVerdict(v verdict, asJSON bool) error {
	if asJSON {
		return term.PrintJSON(c.out, v)
	}
	if v.OK {
		_, err := fmt.Fprintf(c.out, "ok       %s: %d tensors, %s\n", term.Name(v.File), *v.Tensors, term.Bytes(*v.Bytes))
		return err
	}
	fmt.Fprintf(c.out, "refused  %s: ", term.Name(v.File))
	if v.Tensor != "" {
		fmt.Fprintf(c.out, "tensor %q: ", v.Tensor)
	}
	fmt.Fprint(c.out, term.Clean(strings.ReplaceAll(v.Reason, "\n", "; ")))
	if v.Offset != nil {
		fmt.Fprintf(c.out, " (at byte %d)", *v.Offset)
	}
	_, err := fmt.Fprintln(c.out)
	return err
}
