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
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) check() *cobra.Command {
	var values bool
	var part parts.Part
	cmd := c.verb("check SRC... [--values] [--part K/N] [--json]", "Say whether files obey the rules of the format", `
Of a file that does not, it prints the tensor, the rule and the place. Of a folder
it checks every .safetensors file and every index. The exit code is 1 if one is
refused. With --values, one that holds a NaN or an infinity is refused, too. With --part
K/N it checks a part of the files; the lines of all N parts are those of the whole.

--json prints one line for each file:
  {"file": "...", "ok": true, "tensors": 12, "bytes": 4096}
  {"file": "...", "ok": false, "reason": "...", "tensor": "..." if one is at fault,
   "offset": its place in the file, if known}
`+sources, `
safetensors check model.safetensors
safetensors check downloads/*
`, cobra.MatchAll(arguments(1, -1), stdinOnce), func(args []string) error {
		return c.checkAll(args, part, values)
	})
	cmd.Flags().BoolVar(&values, "values", false, "look for NaN and Inf: that reads all data")
	cmd.Flags().Var(&part, "part", "check the files of part `K/N` only")
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

func (c *command) checkAll(names []string, part parts.Part, values bool) error {
	refused, seen := false, 0
	for _, name := range names {
		files, err := filesOf(name)
		if err != nil {
			return err
		}
		for _, file := range files {
			if seen++; !part.Has(seen - 1) {
				continue
			}
			v := c.verdict(file, values)
			if c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			refused = refused || !v.OK
			if err := c.print(v, func() { c.printVerdict(v) }); err != nil {
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
	var info fs.FileInfo
	dir, err := localfile.Path(name)
	if err == nil {
		info, err = os.Stat(dir)
	}
	if err != nil || !info.IsDir() {
		return []string{name}, nil // a URL, -, or what cannot be opened, which is its verdict then
	}
	var files []string
	dir += string(filepath.Separator) // a link is followed
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".safetensors") && !storage.IsIndex(path) {
			return nil
		}
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() { // a pipe would be waited for
			return fmt.Errorf("%s is not a regular file", term.Name(path))
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return []string{name}, nil // a folder of PyTorch, or the verdict says what is in it
	}
	slices.Sort(files)
	return files, nil
}

func (c *command) verdict(name string, values bool) verdict {
	src, err := c.opener.Open(name)
	if err != nil {
		return refusal(name, err)
	}
	defer src.Close()
	if values {
		if tensor, err := c.notFinite(src); err != nil {
			return verdict{File: name, Tensor: tensor, Reason: err.Error()}
		}
	}
	n, size := len(src.Tensors), src.Size()
	return verdict{File: name, OK: true, Tensors: &n, Bytes: &size}
}

// refusal returns the verdict on what could not be opened.
func refusal(name string, err error) verdict {
	v := verdict{File: name, Reason: err.Error()}
	var of *storage.Error
	if errors.As(err, &of) {
		v.Reason = of.Reason.Error()
	}
	var broken *safetensors.FormatError
	if errors.As(err, &broken) {
		v.Reason, v.Tensor = broken.Reason, broken.Tensor
		if broken.Offset >= 0 {
			v.Offset = &broken.Offset
		}
	}
	return v
}

// notFinite returns the first tensor with a NaN or an infinity, and an error that counts
// them.
func (c *command) notFinite(src *source.Checkpoint) (tensor string, err error) {
	var tensors []safetensors.Tensor
	for _, name := range src.Order {
		tensors = append(tensors, src.Tensors[name])
	}
	defer c.progress("check", src.Size())()
	summaries, _, err := stats.Describe(tensors)
	if err != nil {
		return "", err
	}
	others := 0
	for i, s := range summaries {
		switch {
		case s.NaN+s.Inf == 0:
		case err == nil:
			tensor, err = src.Order[i], fmt.Errorf("%s NaN, %s Inf", term.Count(s.NaN), term.Count(s.Inf))
		default:
			others++
		}
	}
	if others > 0 {
		err = fmt.Errorf("%w; %d more tensors have such values", err, others)
	}
	return tensor, err
}

func (c *command) printVerdict(v verdict) {
	if v.OK {
		fmt.Fprintf(c.out, "ok       %s: %s, %s\n", term.Name(v.File), term.Plural(*v.Tensors, "tensor"), term.Bytes(*v.Bytes))
		return
	}
	fmt.Fprintf(c.out, "refused  %s: ", term.Name(v.File))
	if v.Tensor != "" {
		fmt.Fprintf(c.out, "tensor %q: ", v.Tensor)
	}
	fmt.Fprint(c.out, term.Clean(strings.ReplaceAll(v.Reason, "\n", "; ")))
	if v.Offset != nil {
		fmt.Fprintf(c.out, " (at byte %d)", *v.Offset)
	}
	fmt.Fprintln(c.out)
}
