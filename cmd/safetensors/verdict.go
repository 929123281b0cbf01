package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/stats"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A verdict is the result of checking a file. Its fields are also the JSON that check prints.
type verdict struct {
	File    string `json:"file"`
	OK      bool   `json:"ok"`
	Format  string `json:"format,omitempty"` // "" for a safetensors file with the name of one
	Tensors *int   `json:"tensors,omitempty"`
	Bytes   *int64 `json:"bytes,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Tensor  string `json:"tensor,omitempty"`
	Offset  *int64 `json:"offset,omitempty"`

	Unread []report.Unread `json:"unread,omitempty"`

	advice string // what follows the reason in a line for people, or ""
}

func (c *command) verdict(name string, values bool) verdict {
	src, err := c.opener.OpenRead(name)
	if err != nil {
		return refusal(name, err)
	}
	defer src.Close()
	c.keep(src)
	of, mistaken := formatOf(src)
	v := verdict{File: name, Format: of}
	if mistaken {
		v.Reason = fmt.Sprintf("this is a %s, not a safetensors file; cp converts it", of)
		return v
	}
	if missing, err := unread(src, src.Unread()); err != nil {
		v.Tensor, v.Reason, v.Unread = missing[0].Name, missing[0].Reason, missing
		if others := len(missing) - 1; others > 0 {
			v.Reason += fmt.Sprintf("; %s cannot be read, too", term.Plural(others, "more tensor"))
		}
		return v
	}
	if values {
		if v.Tensor, err = c.notFinite(src); err != nil {
			v.Reason = term.Bare(err).Error()
			return v
		}
	}
	n, size := len(src.Tensors), src.Size()
	v.OK, v.Tensors, v.Bytes = true, &n, &size
	return v
}

// formatOf returns the format in which a source was read, or "" if it is safetensors and the name
// does not indicate another format. mistaken reports whether a file has the name of a safetensors
// file, but another format: no other program would read it.
func formatOf(src *source.Checkpoint) (of string, mistaken bool) {
	if src.Format != nil {
		named := format.ByName(src.Files[0].Name)
		if src.Format == format.Safetensors && (named == nil || named == format.Safetensors) {
			return "", false
		}
		return src.Format.Name, named == format.Safetensors
	}
	for _, file := range src.Files {
		switch {
		case strings.HasSuffix(file.Name, ".distcp"):
			return "distributed checkpoint", false
		case format.ByName(file.Name) == format.Torch:
			return "PyTorch files", false
		}
	}
	return "", false
}

// refusal returns the verdict on a source that could not be opened.
func refusal(name string, err error) verdict {
	v := verdict{File: name, Reason: oneLined(err.Error(), err)}
	var of *storage.Error
	if errors.As(err, &of) {
		v.Reason = oneLined(of.Reason.Error(), err)
	}
	var broken *safetensors.FormatError
	if errors.As(err, &broken) {
		v.Reason, v.Tensor, v.advice = storage.WithVerbs(broken.Reason), broken.Tensor, storage.CutAdvice(err)
		if file := fileAtFault(err, broken); file != "" {
			v.Reason = file + ": " + v.Reason
		}
		if broken.Offset >= 0 {
			v.Offset = &broken.Offset
		}
	}
	return v
}

// fileAtFault returns the quoted name of the file that is broken, if err is the error of opening a source with several files. It
// returns "" if the error names no file besides the source.
func fileAtFault(err error, broken *safetensors.FormatError) string {
	reason := err
	if of := new(storage.Error); errors.As(err, &of) {
		reason = of.Reason
	}
	before := func(err error) string {
		text, _, found := strings.Cut(term.Bare(err).Error(), storage.WithVerbs(term.Bare(broken).Error()))
		if !found {
			return ""
		}
		return strings.TrimSuffix(text, ": ")
	}
	text := before(reason)
	at, inner := new(fs.PathError), new(safetensors.FormatError)
	for text != "" && errors.As(err, &at) && errors.As(at, &inner) && inner == broken { // the last one is the innermost
		if err = at.Err; at.Path != "." {
			text = term.Name(at.Path)
			if more := before(err); more != "" {
				text += ": " + more
			}
		}
	}
	return text
}

// notFinite returns the first tensor with a NaN or an infinity, and an error with the numbers of
// such values.
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
	switch {
	case others == 1:
		err = fmt.Errorf("%w; 1 more tensor has such values", err)
	case others > 1:
		err = fmt.Errorf("%w; %d more tensors have such values", err, others)
	}
	return tensor, err
}

func (c *command) printVerdict(v verdict) {
	if v.OK {
		of := ""
		if v.Format != "" {
			of = v.Format + ", "
		}
		fmt.Fprintf(c.out, "ok       %s: %s%s, %s\n", term.Name(v.File), of, term.Plural(*v.Tensors, "tensor"), term.Bytes(*v.Bytes))
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
	fmt.Fprintln(c.out, v.advice)
}
