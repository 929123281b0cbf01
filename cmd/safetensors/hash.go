package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"runtime"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/spf13/cobra"
)

func (c *command) hash() *cobra.Command {
	var tensors bool
	var part parts.Part
	cmd := c.verb("hash SRC... [--tensors] [--part K/N] [--json]", "Print SHA-256 sums of files and of tensors", `
The output is a manifest for the verb verify, and for sha256sum -c in the folder of the
files. With --tensors it has the sum of each tensor too, in lines that are comments to
sha256sum: that of its dtype and shape, a newline and its bytes, so that it stays the
same when files are merged or split.

With --part K/N it prints a part of the lines; sort puts those of all N parts together.

--json prints one line for each SRC:
  {"file": "...", "files": [{"name", "sha256"}, ...],
   "tensors": [{"name", "dtype", "shape", "sha256"}, ...] with --tensors}
`+sources, `
safetensors hash model > model.sha256
safetensors hash --tensors model.safetensors
(cd model && sha256sum -c ../model.sha256)
`, cobra.MatchAll(arguments(1, -1), stdinOnce), func(args []string) error {
		return c.printSums(args, part, tensors)
	})
	cmd.Flags().Var(&part, "part", "print the sums of part `K/N` only")
	cmd.Flags().BoolVar(&tensors, "tensors", false, "print the sums of tensors too")
	return cmd
}

func (c *command) printSums(names []string, part parts.Part, tensors bool) error {
	var all manifest.Manifest
	seen := 0
	mine := func() bool { seen++; return part.Has(seen - 1) }
	from := [2]map[string]string{{}, {}} // the sources of files and of tensors
	for _, name := range names {
		m, err := c.sumsOfSource(name, tensors, mine)
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
	return all.Write(c.out)
}

// sumsOfSource computes the sums of a source: of the files, then of the tensors, for which
// mine is true.
func (c *command) sumsOfSource(name string, tensors bool, mine func() bool) (*manifest.Manifest, error) {
	src, err := c.opener.Open(name)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var files []storage.File
	for _, file := range src.Files {
		if mine() {
			files = append(files, file)
		}
	}
	var names []string
	for _, name := range src.Order {
		if tensors && mine() {
			names = append(names, name)
		}
	}
	return c.sums(src, files, names)
}

// sums computes the sums of files and tensors, as many concurrently as there are
// processors.
func (c *command) sums(src *source.Checkpoint, files []storage.File, names []string) (*manifest.Manifest, error) {
	m := &manifest.Manifest{Files: make([]manifest.Entry, len(files)), Tensors: make([]manifest.Entry, len(names))}
	var jobs []job
	for i, file := range files {
		jobs = append(jobs, job{file.Size, func() error {
			sums, err := hashFile(file, sha256.New(), 0)
			if err == nil {
				m.Files[i] = manifest.Entry{Name: file.Name, Sum: manifest.Sum(sums[0])}
			}
			return err
		}})
	}
	for i, name := range names {
		t := src.Tensors[name]
		jobs = append(jobs, job{t.Size(), func() error {
			h := sha256.New()
			io.WriteString(h, t.String()+"\n")
			_, err := t.WriteTo(h)
			m.Tensors[i] = manifest.Entry{Name: name, DType: t.DType(), Shape: t.Shape(), Type: t.String(), Sum: manifest.Sum(h.Sum(nil))}
			return err
		}})
	}
	return m, c.work(jobs)
}

// hashFiles returns the sums of files as hashFile does. A file that has no hash is not read.
func (c *command) hashFiles(files []storage.File, size int64, newHash func(storage.File) hash.Hash) (sums [][][]byte, err error) {
	sums = make([][][]byte, len(files))
	var jobs []job
	for i, file := range files {
		if h := newHash(file); h != nil {
			jobs = append(jobs, job{file.Size, func() (err error) {
				sums[i], err = hashFile(file, h, size)
				return err
			}})
		}
	}
	return sums, c.work(jobs)
}

// hashFile returns the sum of a file, or those of its pieces of a size.
func hashFile(file storage.File, h hash.Hash, size int64) (sums [][]byte, err error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	buf := make([]byte, min(256<<10, max(file.Size, 512))) // fits into a cache
	if size == 0 {
		_, err = io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, buf)
		return [][]byte{h.Sum(nil)}, err
	}
	for err == nil {
		var n int64
		h.Reset()
		n, err = io.CopyBuffer(struct{ io.Writer }{h}, io.LimitReader(r, size), buf)
		if n == 0 {
			break
		}
		sums = append(sums, h.Sum(nil))
	}
	return sums, err
}

type job struct {
	size int64
	do   func() error
}

// work does jobs, as many concurrently as there are processors, and shows the progress.
func (c *command) work(jobs []job) error {
	total := int64(0)
	for _, j := range jobs {
		total += j.size
	}
	defer c.progress("hash", total)()
	slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.size, a.size) }) // the longest first, so that all end together
	return parallel.Do(runtime.GOMAXPROCS(0), int64(len(jobs)), func(i int64) error { return jobs[i].do() })
}
