package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/spf13/cobra"
)

func (c *command) check() *cobra.Command {
	var values bool
	var part parts.Part
	cmd := c.verb("check SRC... [--values] [--part K/N] [--json]", "Say whether files obey the rules of the format", `
A file that breaks a rule is refused: the line names the tensor, the rule and the place.
In a folder, every .safetensors file and every index is checked, at any depth. If there
are none, PyTorch files and distributed checkpoints are checked instead. Hidden folders do
not count. In a repository or a bucket, there is a line for each model, and one for each
file that opening the models does not read, such as a variant. A file of another format is
checked by the rules of that format, and the line says so; it is refused if a tensor in it
cannot be read, or if its name ends in .safetensors. --values also refuses files with a
NaN or an infinity. A pipe or a device in a folder is refused unread, as is a folder that
cannot be listed. The exit code is 1 if a file is refused.

--part K/N checks part K of the files. The lines of all N parts together are those of a
whole check, without the findings about the folder as a whole.

After its files, a folder has findings: something is missing, or two programs that open
the folder could see different models. A finding is about copies of a tensor that differ,
tensors and shards that the index does not name, missing shards, two checkpoints in one
folder, shards without an index, a config that contradicts the tensors, or components of
a pipeline without weights. The exit code is 1 if there is a finding. To find these, check
reads the headers, and the data of tensors that are stored twice.

--json prints one line for each file:
  {"file": "...", "ok": true, "format": "PyTorch file" (absent for safetensors),
   "tensors": 12, "bytes": 4096}
  {"file": "...", "ok": false, "reason": "...", "tensor": "..." if one is at fault,
   "offset": its place in the file, if known,
   "unread": [{"file", "name", "reason"}, ...]: present if tensors cannot be read}
and one line for each finding, with files named as in the folder:
  {"directory": "...", "ok": false, "rule": "unreadable", "missing", "copies", "unlisted",
   "ambiguous", "no-index" or "config", "files": ["..."],
   "tensor": "..." if one is concerned, "reason": "..."}
`+sources, `
safetensors check model.safetensors
safetensors check downloads
`, cobra.MatchAll(arguments(1, -1), stdinOnce), func(args []string) error {
		return c.checkAll(args, part, values)
	})
	cmd.Flags().BoolVar(&values, "values", false, "also refuse NaN and Inf, which reads all data")
	cmd.Flags().Var(&part, "part", "check the files of part `K/N` only")
	return cmd
}

// A folderFinding is one finding about a folder. Its fields are also the JSON that check prints.
type folderFinding struct {
	Directory string          `json:"directory"`
	OK        bool            `json:"ok"`
	Rule      checkpoint.Rule `json:"rule"`
	Files     []string        `json:"files"`
	Tensor    string          `json:"tensor,omitempty"`
	Reason    string          `json:"reason"`
}

// checkFolder prints the findings about a source that is a folder, and reports whether there is
// one. It does not print findings that repeat the refusal of a file.
func (c *command) checkFolder(name string, refused map[string]bool) (found bool, err error) {
	files, err := c.opener.Directory(name)
	if err != nil || files == nil {
		return false, err
	}
	findings, err := checkpoint.Check(files, ".")
	if cause := context.Cause(c.ctx); cause != nil {
		return false, cause
	}
	if err != nil {
		return false, c.opener.Named(name, err)
	}
	dir, err := localfile.Path(name)
	if err != nil {
		return false, err
	}
	for _, f := range findings {
		at := filepath.Join(dir, filepath.FromSlash(f.Files[0]))
		if storage.IsURL(dir) {
			at = source.Inside(name, f.Files[0])
		}
		if told := f.Rule == checkpoint.Unreadable || f.Files[0] == "."; told && (refused[at] || refused[name]) {
			continue
		}
		found = true
		v := folderFinding{storage.Shown(name), false, f.Rule, f.Files, f.Tensor, storage.WithVerbs(f.Text)}
		if err := c.print(v, func() {
			fmt.Fprintf(c.out, "found    %s: %s: %s\n", v.Directory, v.Rule, term.Clean(v.Reason))
		}); err != nil {
			return found, err
		}
	}
	return found, nil
}

func (c *command) checkAll(names []string, part parts.Part, values bool) error {
	bad, seen := false, 0
	c.keyOfSome(names)
	for _, name := range names {
		refused := make(map[string]bool)
		files, unlisted := c.filesOf(name)
		for _, file := range files {
			if seen++; !part.Has(seen - 1) {
				continue
			}
			v := verdict{File: file, Reason: "it is not a regular file"}
			if file == name || !irregular(file) {
				v = c.verdict(file, values)
			}
			if v.OK && unlisted != nil {
				v = refusal(file, unlisted)
			}
			if c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			refused[file] = !v.OK
			bad = bad || !v.OK
			if err := c.print(v, func() { c.printVerdict(v) }); err != nil {
				return err
			}
		}
		if part.N <= 1 {
			found, err := c.checkFolder(name, refused)
			if at := new(fs.PathError); errors.As(err, &at) && at.Path != name && refused[at.Path] { // a folder below that cannot be listed
				c.opener.Note(fmt.Sprintf("%s: %s was not read, so that there are no findings about the folder", storage.Shown(name), term.Name(at.Path)))
				err = nil
			}
			if err != nil && (c.ctx.Err() != nil || !refused[name]) { // otherwise the verdict on the source gives the reason already
				return err
			}
			bad = bad || found
		} else if dir, err := c.opener.Directory(name); part.K == 1 && err == nil && dir != nil {
			c.opener.Note(storage.Shown(name) + ": findings about the folder as a whole are printed only without --part")
		}
	}
	switch {
	case bad:
		return errDifferent
	case part.N > 1: // the files with the dict of --key may be in another part
		return nil
	}
	return c.checkKey()
}

// filesOf returns the names that check opens for a source. For a folder, these are the safetensors files and the
// indexes in it and below. If there are none, they are the folders below that contain a model in another format.
// Otherwise, the only name is that of the source itself. As for checkpoint.Check, hidden folders and the files of macOS
// do not count. If the files of a folder elsewhere cannot be listed, filesOf also returns the error.
func (c *command) filesOf(name string) ([]string, error) {
	var info fs.FileInfo
	dir, err := localfile.Path(name)
	if err == nil && storage.IsURL(dir) {
		return c.filesAway(name)
	}
	if err == nil {
		info, err = os.Stat(dir)
	}
	if err != nil || !info.IsDir() {
		return []string{name}, nil // it is -, or a file; or it cannot be opened, and its verdict gives the reason
	}
	var files, below, unreadable []string
	dir = strings.TrimSuffix(dir, string(filepath.Separator)) + string(filepath.Separator) // follows a link to a folder
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil { // a folder that cannot be listed: its verdict gives the reason
			if path != dir {
				unreadable = append(unreadable, path)
			}
			return nil
		}
		switch name := d.Name(); {
		case path != dir && d.IsDir() && (name == "__MACOSX" || strings.HasPrefix(name, ".")):
			return fs.SkipDir
		case strings.HasPrefix(name, "._"):
			return nil
		}
		if !d.IsDir() && holdsModel(d.Name()) {
			below = append(below, filepath.Dir(path))
		}
		if d.IsDir() || !strings.HasSuffix(path, ".safetensors") && !storage.IsIndex(path) {
			return nil
		}
		files = append(files, path)
		return nil
	})
	if len(files) == 0 {
		if files = below; len(below) == 0 {
			files = looseFiles(dir)
		}
		if len(files) == 0 || slices.Contains(below, filepath.Clean(dir)) {
			files = []string{name} // it is a checkpoint itself, or its verdict will list what it contains
		}
	}
	files = append(files, unreadable...)
	slices.Sort(files)
	return slices.Compact(files), nil
}

// filesAway is filesOf for a URL. Each file costs requests, so that the files of a model are not opened one by one: the names are
// those of the models in a folder, and of all files that opening these models may not read, such as variants.
func (c *command) filesAway(name string) (all []string, err error) {
	models, err := c.opener.Models(name)
	var weights []string
	if err == nil {
		weights, err = c.weightsBelow(name)
	}
	if err != nil || len(weights) == 0 { // without weights, it is a file, or its verdict gives the reason
		return []string{name}, err
	}
	inFolders := make(map[string][]string)
	for _, file := range weights {
		if strings.HasSuffix(file, ".safetensors") {
			dir := path.Dir(file)
			inFolders[dir] = append(inFolders[dir], path.Base(file))
		}
	}
	for _, dir := range models {
		files := inFolders[dir]
		if read, _ := (variant.Endings{".safetensors"}).Among(files); ofOneModel(read) {
			all = append(all, source.ModelAt(name, dir))
			inFolders[dir] = slices.DeleteFunc(files, func(file string) bool { return slices.Contains(read, file) })
		}
	}
	for dir, files := range inFolders {
		for _, file := range files {
			all = append(all, source.Inside(name, path.Join(dir, file)))
		}
	}
	if len(all) == 0 {
		return []string{name}, nil
	}
	slices.Sort(all)
	return all, nil
}

// ofOneModel reports whether files in a folder are a single file, or shards of one model.
func ofOneModel(files []string) bool {
	for _, file := range files {
		if _, numbered := variant.ParseShard(file); !numbered && len(files) > 1 || variant.Model(file) != variant.Model(files[0]) {
			return false
		}
	}
	return true
}

// looseFiles returns the files and indexes of torch.save in a folder that holds several, none of which has the usual name
// of a model. It returns none for any other folder.
func looseFiles(dir string) (files []string) {
	f, err := checkpoint.Opener{Skip: func(string, error) {}}.Open(dir)
	if err == nil {
		f.Close()
	}
	if several := new(variant.Several); errors.As(err, &several) {
		for _, name := range several.Names {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files
}

// irregular reports whether a file is a pipe or a device. Check opens such a file only if the command line names it:
// opening a pipe waits for its writer, which may not exist.
func irregular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// holdsModel reports whether a folder with a file of this name has a distributed checkpoint, or a model by torch.save,
// rather than the state of an optimizer or of another part of a job.
func holdsModel(name string) bool {
	return variant.IsMetadata(name) || variant.IsTorchModel(name)
}
