package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"text/tabwriter"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (c *command) ls() *cobra.Command {
	var f listFlags
	cmd := c.verb("ls SRC... [--only PATTERN] [--tree [--depth N]] [--sort size|name] [--json]", "List tensors, dtypes, shapes, bytes, parameters and metadata", `
Only headers are read, so the size of a model does not matter.

--json prints one line for each SRC:
  {"file": "...", "metadata": {...} or null,
   "tensors": [{"name", "dtype", "shape", "parameters", "bytes"}, ...],
   "dtypes": [{"dtype", "tensors", "parameters", "bytes"}, ...],
   "total": {"tensors", "parameters", "bytes"},
   "quantised": [{"layout", "tensors", "parameters"}, ...]}: the tensors and
   parameters that quantised tensors stand for; present if there are any
`+sources, `
safetensors ls model.safetensors
safetensors ls --tree --depth 2 hf://mistralai/Mistral-7B-v0.3
safetensors ls model --only '*.experts.*' --sort size
safetensors ls --json s3://models/llama | jq .total.parameters
`, cobra.MatchAll(arguments(1, -1), stdinOnce), func(args []string) error {
		return c.list(args, f)
	})
	flags := cmd.Flags()
	f.given = flags
	flags.StringArrayVar(&f.only, "only", nil, "list only tensors that match `PATTERN`: *, ? and [a-z], or a name and all below it")
	flags.StringArrayVar(&f.except, "except", nil, "leave out tensors that match `PATTERN`")
	flags.StringVar(&f.sort, "sort", "", "order tensors by `ORDER`: size, the largest first, or name, with numbers as numbers")
	flags.BoolVar(&f.tree, "tree", false, "show a tree of the names, split at dots, with sums")
	flags.IntVar(&f.depth, "depth", 0, "show a tree of only `N` levels")
	return cmd
}

type listFlags struct {
	only   []string
	except []string
	sort   string
	tree   bool
	depth  int
	given  *pflag.FlagSet // the flags that are set

	selection pattern.Selection // parsed value of only and except
}

// list lists sources. Like ls of Unix, it continues after a source that fails.
func (c *command) list(names []string, f listFlags) (err error) {
	switch f.selection, err = pattern.ParseSelection(f.only, f.except); {
	case err != nil:
		return usageError{err}
	case f.sort != "" && f.sort != "size" && f.sort != "name":
		return usage("--sort %s: expected size or name", f.sort)
	case f.given.Changed("depth") && f.depth < 1:
		return usage("--depth %d: expected 1 or more", f.depth)
	}
	if f.tree = f.tree || f.depth > 0; f.tree && c.json {
		return usage("--tree and --json cannot be combined: --json lists the tensors one by one")
	}
	var errs []error
	listed := 0
	c.keyOfSome(names)
	var first *listing // the first source, if it was listed
	for i, name := range names {
		l, err := c.listing(name, f)
		if i == 0 {
			first = l
		}
		if errors.Is(err, fs.ErrNotExist) && first != nil {
			err = orTensor(name, first, err)
		}
		if errors.As(err, new(*pattern.NoMatch)) && len(names) > 1 {
			err = fmt.Errorf("%s: %w", storage.Shown(name), err)
		}
		if err != nil {
			errs = append(errs, err)
			if c.ctx.Err() != nil {
				break
			}
			continue
		}
		err = c.print(l, func() {
			if listed > 0 {
				fmt.Fprintln(c.out)
			}
			c.printListing(l, f)
		})
		if err != nil {
			return err
		}
		listed++
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return c.checkKey()
}

// A listing describes the contents of a source. Its fields are also the JSON that ls prints.
type listing struct {
	File     string            `json:"file"`     // name on the command line
	Metadata map[string]string `json:"metadata"` // null if the file has none
	Tensors  []listed          `json:"tensors"`  // in the order of the file, unless sorted
	DTypes   []total           `json:"dtypes"`   // in the order of their first tensor
	Total    total             `json:"total"`    // total over all dtypes

	Quantised []quantisedTotal `json:"quantised,omitempty"`
}

// orTensor adds advice to the error for a source that does not exist, if its name is the name of tensors of the first
// source, or if it resembles one and no file has a similar name.
func orTensor(name string, first *listing, err error) error {
	near := source.NearFile(name)
	switch matches := first.matches(name); {
	case matches && near != "":
		return fmt.Errorf("%w To list some tensors of %s: --only %s", err, storage.Shown(first.File), term.Word(name))
	case matches:
		return fmt.Errorf("%w; to list some tensors of %s: --only %s", err, storage.Shown(first.File), term.Word(name))
	case near != "":
		return err
	}
	var tensors []string
	for _, t := range first.Tensors {
		tensors = append(tensors, t.Name)
	}
	if near := pattern.SuggestTensor(name, tensors); near != "" {
		return fmt.Errorf("%w, nor a tensor of %s%s --only selects tensors", err, storage.Shown(first.File), near)
	}
	return err
}

// matches reports whether a pattern selects one of the tensors.
func (l *listing) matches(text string) bool {
	glob, err := pattern.ParseGlob(text)
	return err == nil && slices.ContainsFunc(l.Tensors, func(t listed) bool { return glob.Matches(t.Name) })
}

func (c *command) listing(name string, f listFlags) (*listing, error) {
	src, _, err := c.openAll(name, c.opener.Open)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	c.keep(src)
	names, err := c.selectRead(src, f.selection)
	if names, err = selected(names, err, false, "show and stats have --dequantize, which shows its numbers", src); err != nil {
		return nil, err
	}
	switch f.sort {
	case "name":
		slices.SortFunc(names, pattern.Compare)
	case "size":
		slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(src.Tensors[b].Size(), src.Tensors[a].Size()) })
	}
	l := &listing{File: src.Name, Metadata: src.Metadata, Tensors: []listed{}, DTypes: []total{}}
	for _, name := range names {
		t := src.Tensors[name]
		x := listed{name, t.DType(), t.Shape(), numbers.Count(t), t.Size()}
		l.Tensors = append(l.Tensors, x)
		i := slices.IndexFunc(l.DTypes, func(of total) bool { return of.DType == t.DType() })
		if i < 0 {
			i = len(l.DTypes)
			l.DTypes = append(l.DTypes, total{DType: t.DType()})
		}
		l.DTypes[i].add(x)
		l.Total.add(x)
	}
	if l.Quantised, err = quantisedTotals(src); errors.As(err, new(unreadConfig)) {
		return nil, fmt.Errorf("%s: %w", storage.Shown(name), err)
	} else if err != nil {
		c.opener.Note(fmt.Sprintf("%s: its quantised tensors cannot be read as numbers: %s", storage.Shown(name), err))
	}
	return l, nil
}

func (c *command) printListing(l *listing, f listFlags) {
	w := c.out
	fmt.Fprintf(w, "%s\n\n", term.Name(l.File))
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if f.tree {
		printTree(columns, l.Tensors, f.depth, f.sort == "size")
	} else {
		fmt.Fprintf(columns, "NAME\tDTYPE\tSHAPE\t%8s\n", "BYTES")
		for _, t := range l.Tensors {
			fmt.Fprintf(columns, "%s\t%v\t%s\t%8s\n", term.Name(t.Name), t.DType, term.Shape(t.Shape), term.Bytes(t.Bytes))
		}
	}
	columns.Flush()

	fmt.Fprintf(columns, "\nDTYPE\t%7s\t%17s\t%8s\n", "TENSORS", "PARAMETERS", "BYTES")
	row := func(name string, t total) {
		fmt.Fprintf(columns, "%s\t%7d\t%17s\t%8s\n", name, t.Tensors, term.Count(t.Parameters), term.Bytes(t.Bytes))
	}
	for _, t := range l.DTypes {
		row(t.DType.String(), t)
	}
	row("total", l.Total)
	columns.Flush()
	if len(l.Quantised) > 0 {
		fmt.Fprintf(columns, "\nQUANTISED\t%7s\t%17s\n", "TENSORS", "PARAMETERS")
		for _, q := range l.Quantised {
			fmt.Fprintf(columns, "%s\t%7d\t%17s\n", q.Layout, q.Tensors, term.Count(q.Parameters))
		}
		columns.Flush()
	}
	if len(l.Metadata) > 0 {
		fmt.Fprintln(w)
	}
	c.printMetadata(l.Metadata)
}
