package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numpy"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) show() *cobra.Command {
	var slice string
	cmd := c.verb("show SRC NAME [--slice RANGES] [--dequantize] [--json]", "Print the values of a tensor, in the layout of numpy", `
Of a tensor with more than 1,000 elements, only the corners are printed and read.
Floats have up to eight digits.

--json prints one line, with all elements, however many, and all their digits:
  {"file": "...", "name": "...", "dtype": "...", "shape": [...], "values": nested lists}
A complex number is [real, imaginary]; "NaN", "Infinity" and "-Infinity" are strings.
`+sources, `
safetensors show model.safetensors lm_head.weight
safetensors show model.safetensors model.embed_tokens.weight --slice 0:4,:
safetensors show hf://openai-community/gpt2 wte.weight --slice -1,::100
safetensors show --json model.safetensors model.norm.weight | jq '.values | max'
`, arguments(2, 2), func(args []string) error {
		return c.showTensor(args[0], args[1], slice)
	})
	cmd.Flags().StringVar(&slice, "slice", "", "the `RANGES` to print, one for each leading dimension: 3, 0:4, :, -2:, ::10")
	return cmd
}

// maxRank is that of numpy.
const maxRank = 64

func (c *command) showTensor(name, tensor, slice string) error {
	src, _, err := c.openValues(name)
	if err != nil {
		return err
	}
	defer src.Close()
	t, err := tensorOf(src, tensor)
	if err != nil {
		return err
	}
	c.noteCodes(src, tensor)
	ranges, err := parseRanges(slice, t.Shape())
	if err != nil {
		return usageError{err}
	}
	if t, err = t.Slice(ranges...); err != nil {
		return err
	}
	if rank := len(t.Shape()); rank > maxRank {
		return fmt.Errorf("tensor %q: %d dimensions, at most %d can be printed: select some with --slice", tensor, rank, maxRank)
	}
	if c.json {
		return c.printValues(name, tensor, t)
	}
	text, err := numpy.Print(t)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", tensor, term.Bare(err))
	}
	fmt.Fprintln(c.out, text)
	return nil
}

func (c *command) printValues(file, name string, t safetensors.Tensor) error {
	var head bytes.Buffer
	err := term.PrintJSON(&head, struct {
		File  string            `json:"file"`
		Name  string            `json:"name"`
		DType safetensors.DType `json:"dtype"`
		Shape []int             `json:"shape"`
	}{file, name, t.DType(), t.Shape()})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s,\"values\":", bytes.TrimSuffix(head.Bytes(), []byte("}\n")))
	if err := numpy.WriteJSON(c.out, t); err != nil {
		return fmt.Errorf("tensor %q: %w", name, term.Bare(err))
	}
	_, err = fmt.Fprintln(c.out, "}")
	return err
}

func tensorOf(src *source.Checkpoint, name string) (safetensors.Tensor, error) {
	t, ok := src.Tensors[name]
	if why, refused := src.Refused[name]; refused {
		return t, fmt.Errorf("%q of %s: %w", name, storage.Shown(src.Name), why)
	}
	if !ok {
		return t, fmt.Errorf("no tensor of %s is named %q%s", storage.Shown(src.Name), name, pattern.Suggest(name, src.Order))
	}
	return t, nil
}

// parseRanges reads ranges as they are written between the brackets of Python.
func parseRanges(text string, dims []int) ([]safetensors.Range, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(strings.Trim(text, "[]"), ",")
	if len(parts) > len(dims) {
		return nil, fmt.Errorf("--slice %s: more ranges than the %d dimensions of the tensor", text, len(dims))
	}
	var ranges []safetensors.Range
	for d, part := range parts {
		r, err := parseRange(strings.TrimSpace(part), dims[d])
		if err != nil {
			return nil, fmt.Errorf("--slice %s: %w", text, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// parseRange reads one range in a dimension of that size.
func parseRange(text string, size int) (safetensors.Range, error) {
	parts := strings.Split(text, ":")
	numbers := []int{0, size, 1}
	for i, part := range parts {
		if part == "" && (len(parts) == 2 || len(parts) == 3) {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || len(parts) > 3 {
			return safetensors.Range{}, fmt.Errorf("%q is not an index or START:STOP:STEP", text)
		}
		numbers[i] = n
	}
	if len(parts) == 1 {
		return safetensors.At(numbers[0]), nil
	}
	return safetensors.Span(numbers[0], numbers[1]).By(numbers[2]), nil
}
