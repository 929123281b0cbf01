package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	cmd := c.verb("show SRC [NAME] [--slice RANGES] [--dequantize] [--json]", "Print the values of a tensor, in the layout of numpy", `
A tensor with more than 1,000 elements is cut to its corners, and no more is read. Floats
have up to eight digits. NAME can be left out if SRC has a single tensor, as a .npy file.
RANGES are written as in Python, but have to lie within the tensor, with steps above 0.
Elements of less than a byte, as of F4, are selected in groups that fill whole bytes.

--json prints one line with all elements and all their digits:
  {"file": "...", "name": "...", "dtype": "...", "shape": [...], "values": nested lists}
A complex number is [real, imaginary]; "NaN", "Infinity" and "-Infinity" are strings.
`+sources, `
safetensors show model.safetensors lm_head.weight
safetensors show model.safetensors model.embed_tokens.weight --slice 0:4,:
safetensors show hf://openai-community/gpt2 wte.weight --slice -1,::100
safetensors show --json model.safetensors model.norm.weight | jq '.values | max'
`, cobra.MatchAll(oneTensor, arguments(1, -1)), func(args []string) error {
		return c.showTensor(args[0], args[1:], slice)
	})
	cmd.Flags().StringVar(&slice, "slice", "", "the `RANGES` to print, one for each leading dimension: 3, 0:4, :, -2:, ::10")
	return cmd
}

// oneTensor returns an error if show has further arguments after the name of a tensor.
func oneTensor(_ *cobra.Command, args []string) error {
	if len(args) <= 2 {
		return nil
	}
	if rest := strings.Join(args[2:], ","); strings.Trim(rest, "0123456789:,-") == "" {
		return usage("show takes ranges as a flag: --slice %s", rest)
	}
	return usage("show prints one tensor, and got %d names", len(args)-1)
}

// maxRank is the largest number of dimensions that numpy supports.
const maxRank = 64

// showTensor shows the tensor whose name is given, or the only tensor of the source.
func (c *command) showTensor(name string, given []string, slice string) error {
	src, folder, err := c.openTensor(name, given)
	if err != nil {
		if len(given) > 0 && errors.Is(err, fs.ErrNotExist) && isFile(given[0]) {
			return usage("%w; expected SRC before NAME: show %s %s", term.Bare(err), storage.Word(given[0]), term.Word(name))
		}
		return err
	}
	defer src.Close()
	if len(given) == 0 {
		if given = src.Order; len(given) != 1 {
			return usage("%s has %s: expected the NAME of one", storage.Shown(src.Name), term.Plural(len(given), "tensor"))
		}
	}
	tensor := strings.TrimPrefix(given[0], folder)
	t, err := c.tensorOf(src, tensor)
	if err != nil {
		return err
	}
	if err := c.noteCodes(src, tensor); err != nil {
		return err
	}
	ranges, err := parseRanges(slice, t.Shape())
	if err != nil {
		return usageError{err}
	}
	if t, err = sliceOf(t, ranges); err != nil {
		return err
	}
	if rank := len(t.Shape()); rank > maxRank {
		return fmt.Errorf("tensor %q: %d dimensions, at most %d can be printed: select some with --slice", tensor, rank, maxRank)
	}
	if c.json {
		return c.printValues(name, given[0], t)
	}
	text, err := numpy.Print(t)
	if err != nil {
		return c.opener.Named(name, ofTensor(tensor, err))
	}
	fmt.Fprintln(c.out, text)
	return nil
}

// sliceOf returns the selected part of a tensor. If its elements are smaller than a byte and the selected ones do not fill whole
// bytes, the error says in which groups they do.
func sliceOf(t safetensors.Tensor, ranges []safetensors.Range) (safetensors.Tensor, error) {
	part, err := t.Slice(ranges...)
	group := 1
	for group*t.DType().Bits()%8 != 0 {
		group++
	}
	if err == nil || group == 1 {
		return part, err
	}
	bytes, _ := safetensors.NewTensorFunc(safetensors.U8, t.Shape(), func([]uint8) error { return nil })
	if _, outside := bytes.Slice(ranges...); outside == nil { // the ranges are right for elements of whole bytes
		err = fmt.Errorf("%w; select elements of %v in groups of %d", err, t.DType(), group)
	}
	return part, err
}

// openTensor opens a source for the tensor whose name is given, if any. If the source is a folder
// with several models, and the name begins with the folder of one, openTensor opens this model, and
// returns that folder with a slash. Other names are those of tensors in the model of the folder
// itself.
func (c *command) openTensor(name string, given []string) (src *source.Checkpoint, folder string, err error) {
	models, err := c.modelsOf(name, c.opener.Open)
	if err != nil {
		return nil, "", err
	}
	open := func(name string) (*source.Checkpoint, error) {
		src, _, err := c.openValues(name, c.opener.Open)
		return src, err
	}
	below := belowOf(models)
	model := ""
	for _, dir := range below {
		if len(given) > 0 && strings.HasPrefix(given[0], dir+"/") && len(dir) > len(model) { // a model may be in the folder of another one
			model = dir
		}
	}
	switch {
	case model != "":
		src, err = open(source.Inside(name, model))
		return src, model + "/", err
	case len(below) == 0 || len(given) > 0 && models[0] == ".":
		src, err = open(name)
	default:
		src, err = openEach(name, models, open)
	}
	return src, "", err
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return err == nil
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
		return c.opener.Named(file, ofTensor(name, err))
	}
	_, err = fmt.Fprintln(c.out, "}")
	return err
}

func (c *command) tensorOf(src *source.Checkpoint, name string) (safetensors.Tensor, error) {
	t, ok := src.Tensors[name]
	if why, refused := src.Refused[name]; refused {
		return t, fmt.Errorf("%q of %s: %w", name, storage.Shown(src.Name), why)
	}
	if !ok && !c.values && standsFor(src, func(plain string) bool { return plain == name }) != "" {
		return t, fmt.Errorf("%s holds %q as codes and scales: %s", storage.Shown(src.Name), name, showsNumbers)
	}
	aliases := aliasesOf(src)
	if stored, alias := aliases[name]; !ok && alias {
		c.noteAliases(aliases, []string{name})
		return src.Tensors[stored], nil
	}
	if !ok && name == "" { // as when a variable of a shell is not set
		return t, usage("no tensor of %s has an empty name: expected the NAME of one", storage.Shown(src.Name))
	}
	if !ok {
		advice := otherName(src, name)
		if advice == "" {
			if err := otherSource("show", name); err != nil {
				return t, err
			}
			advice = fmt.Sprintf("; ls %s lists the names", storage.Word(src.Name))
		}
		return t, fmt.Errorf("no tensor of %s is named %q%s", storage.Shown(src.Name), name, advice)
	}
	return t, nil
}

// otherName returns what to show in place of a name that no tensor of a source has: a slice of a
// tensor, one of the tensors below a module or a folder, or a tensor with a similar name. It returns "" if there
// is none.
func otherName(src *source.Checkpoint, name string) string {
	if tensor, ranges, sliced := strings.Cut(name, "["); sliced {
		if _, ok := src.Tensors[tensor]; ok {
			return fmt.Sprintf(", did you mean %s --slice %s?", term.Word(tensor), term.Word(strings.ReplaceAll(strings.TrimSuffix(ranges, "]"), " ", "")))
		}
	}
	var below []string
	for _, tensor := range src.Order {
		if strings.HasPrefix(tensor, name+".") || strings.HasPrefix(tensor, name+"/") {
			below = append(below, tensor)
		}
	}
	if len(below) > 1 {
		return fmt.Sprintf(", but %d start with it, such as %q: ls --only %s lists them", len(below), below[0], term.Word(name))
	}
	return pattern.Suggest(name, src.Order)
}

// parseRanges parses ranges in the syntax of Python slices, such as "[1:3, ::2]". It accepts them without brackets as well.
func parseRanges(text string, dims []int) ([]safetensors.Range, error) {
	if text == "" {
		return nil, nil
	}
	parts := strings.Split(strings.TrimSuffix(strings.Trim(text, "[]"), ","), ",") // Python ignores a comma at the end, too
	if len(parts) > len(dims) {
		return nil, fmt.Errorf("--slice %s: %s, but the tensor has %s", text, term.Plural(len(parts), "range"), term.Plural(len(dims), "dimension"))
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

// parseRange parses one range in a dimension with this size.
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
	if numbers[2] < 1 {
		return safetensors.Range{}, fmt.Errorf("the step %d of %q is below 1", numbers[2], text)
	}
	return safetensors.Span(numbers[0], numbers[1]).By(numbers[2]), nil
}
