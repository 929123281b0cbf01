package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) hash() *cobra.Command {
	var tensors, data bool
	var part parts.Part
	var only, except []string
	cmd := c.verb("hash SRC... [--tensors] [--part K/N] [--data] [--json]", "Print SHA-256 sums of files and of tensors", `
The output is a manifest: for safetensors verify, and for sha256sum -c in the folder of
the files. The manifest of a folder lists the files with tensors and their index, not
config.json and the like; sign covers all files.

--tensors adds the sum of each tensor, in lines that sha256sum takes for comments. It
covers dtype and shape, a newline and the bytes, so it stays the same when files are
merged or split. There is a line for each stored tensor, and none for the other names of a
tied tensor, which the metadata lists; verify finds the tensor by any of them. A tensor
that cannot be read is an error unless --only or --except leaves it out.

--data prints the sum of the data of each safetensors file, without its header. It stays
the same when metadata change. kohya's sd-scripts call it sshs_model_hash; Civitai shows
it in capitals as AutoV3. verify compares sums of whole files, and would print DIFFERS for
these lines. If files of several SRC have the same name, the name in each of these lines
begins with SRC.

--part K/N prints part K of the lines; sort joins the lines of all N parts.

--json prints one line for each SRC:
  {"file": "...", "files": [{"name", "sha256"}, ...],
   "tensors": [{"name", "dtype", "shape", "sha256"}, ...] with --tensors,
   "unread": [{"file", "name", "reason"}, ...] with --tensors, if some cannot be read;
   then there are no sums}
or, with --data:
  {"file": "...", "data": [{"name", "sha256"}, ...]}
`+sources, `
safetensors hash model > model.sha256
safetensors hash --tensors model.safetensors
(cd model && sha256sum -c ../model.sha256)
`, cobra.MatchAll(arguments(1, -1), stdinOnce), func(args []string) error {
		selection, err := pattern.ParseSelection(only, except)
		switch {
		case err != nil:
			return usageError{err}
		case len(only) > 0 && !tensors:
			return usage("--only needs --tensors")
		case len(except) > 0 && !tensors:
			return usage("--except needs --tensors")
		case data && (tensors || part.N > 1):
			return usage("--data cannot be combined with --tensors or --part")
		case data:
			return c.printDataSums(args)
		}
		return c.printSums(args, part, tensors, selection)
	})
	cmd.Flags().Var(&part, "part", "print the sums of part `K/N` only")
	cmd.Flags().BoolVar(&data, "data", false, "print the sums of the data without the headers")
	cmd.Flags().BoolVar(&tensors, "tensors", false, "print the sums of tensors too")
	cmd.Flags().StringArrayVar(&only, "only", nil, "with --tensors: print the sums of only those tensors that match `PATTERN`")
	cmd.Flags().StringArrayVar(&except, "except", nil, "with --tensors: leave out tensors that match `PATTERN`")
	return cmd
}

func (c *command) printSums(names []string, part parts.Part, tensors bool, selection pattern.Selection) error {
	var all manifest.Manifest
	seen := 0
	c.keyOfSome(names)
	mine := func() bool { seen++; return part.Has(seen - 1) }
	from := [2]map[string]string{{}, {}} // maps names of files, and names of tensors, to their sources
	var tried []string                   // names of the tensors of all sources, if there are several
	for _, name := range names {
		among := func(src *source.Checkpoint) (pattern.Selection, bool) {
			if len(names) == 1 {
				return selection, true
			}
			all := slices.Concat(namesOf(src), slices.Collect(maps.Keys(aliasesOf(src))))
			tried = append(tried, all...)
			return selection.Among(all)
		}
		m, err := c.sumsOfSource(name, tensors, among, mine)
		if err != nil {
			return err
		}
		if c.json {
			err := term.PrintJSON(c.out, struct {
				File string `json:"file"`
				*manifest.Manifest
			}{name, m})
			if err != nil {
				return err
			}
			continue
		}
		for kind, entries := range [][]manifest.Entry{m.Files, m.Tensors} {
			for _, e := range entries {
				if other, taken := from[kind][e.Name]; taken {
					return fmt.Errorf("%q is in %s and in %s: write a manifest for each", e.Name, storage.Shown(other), storage.Shown(name))
				}
				from[kind][e.Name] = name
			}
		}
		all.Files = append(all.Files, m.Files...)
		all.Tensors = append(all.Tensors, m.Tensors...)
	}
	if len(tried) > 0 {
		if _, err := selection.Of(tried); err != nil { // a pattern that matches nothing in any source
			return err
		}
	}
	if err := c.checkKey(); err != nil || c.json {
		return err
	}
	return all.Write(c.out)
}

// sumsOfSource computes the sums of those files, and then of those tensors, of a source for which mine returns true. among
// returns the selection of tensors in a source, or false if there are none.
func (c *command) sumsOfSource(name string, tensors bool, among func(src *source.Checkpoint) (pattern.Selection, bool), mine func() bool) (*manifest.Manifest, error) {
	open := c.opener.OpenFiles
	if tensors {
		open = c.opener.OpenRead
	}
	src, _, err := c.openAll(name, open)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	c.keep(src)
	var selected []string
	if tensors {
		if selection, ok := among(src); ok {
			selected, err = c.selectTensors(src, selection, namesOf(src))
		}
		if err != nil {
			return nil, err
		}
		if missing, err := unread(src, selected); err != nil {
			return nil, cmp.Or(c.print(unreadSums{name, missing}, func() {}), err)
		}
	}
	var files []storage.File
	for _, file := range src.Files {
		if mine() {
			files = append(files, file)
		}
	}
	var names []string
	if tensors {
		names = []string{}
	}
	for _, name := range selected {
		if _, is := src.Tensors[name]; is && mine() {
			names = append(names, name)
		}
	}
	return c.sums(src, files, names)
}
