package main

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/parts"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) hash() *cobra.Command {
	var tensors, asJSON bool
	var part parts.Part
	cmd := c.verb("hash SRC... [--tensors] [--part K/N] [--json]", "Print SHA-256 sums of files and of tensors", `
The output is a manifest for the verb verify, and for sha256sum -c in the folder of the
files. With --tensors it has the sum of each tensor too, in lines that are comments to
sha256sum: that of its dtype and shape, a newline and its bytes, so that it stays the
same when files are merged or split.

With --part K/N it prints a part of the lines; sort puts those of all N parts together.

Of a SRC on a web server or a hub, only the tensors can be read, with --tensors.

--json prints one line for each SRC:
  {"file": "...", "files": [{"name", "sha256"}, ...],
   "tensors": [{"name", "dtype", "shape", "sha256"}, ...] with --tensors}
`+sources, `
safetensors hash model > model.sha256
safetensors hash --tensors model.safetensors
(cd model && sha256sum -c ../model.sha256)
`, cobra.MatchAll(arguments(1, -1), stdinOnce), func(args []string) error {
		return c.printSums(args, part, tensors, asJSON)
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each SRC")
	cmd.Flags().Var(&part, "part", "print the sums of part `K/N` only")
	cmd.Flags().BoolVar(&tensors, "tensors", false, "print the sums of tensors too")
	return cmd
}

func (c *command) printSums(names []string, part parts.Part, tensors, asJSON bool) error {
	var all manifest.Manifest
	seen := 0
	mine := func() bool { seen++; return part.Has(seen - 1) }
	from := [2]map[string]string{{}, {}} // the sources of files and of tensors
	for _, name := range names {
		m, types, err := c.sumsOfSource(name, tensors, mine)
		if err != nil {
			return err
		}
		if asJSON {
			if err := term.PrintJSON(c.out, hashedOf(name, m, types)); err != nil {
				return err
			}
			continue
		}
		for kind, entries := range [][]manifest.Entry{m.Files, m.Tensors} {
			for _, e := range entries {
				if other, taken := from[kind][e.Name]; taken {
					return fmt.Errorf("%q is in %s and in %s: write a manifest for each", e.Name, source.Shown(other), source.Shown(name))
				}
				from[kind][e.Name] = name
			}
		}
		all.Files = append(all.Files, m.Files...)
		all.Tensors = append(all.Tensors, m.Tensors...)
	}
	return all.Write(c.out)
}

// A hashed is the sums of a source. Its fields are those of the JSON form.
type hashed struct {
	File    string      `json:"file"`
	Files   []hashedOne `json:"files"`
	Tensors []hashedOne `json:"tensors,omitempty"`
}

type hashedOne struct {
	Name   string `json:"name"`
	*typed        // of a tensor
	SHA256 string `json:"sha256"`
}

func hashedOf(name string, m *manifest.Manifest, types []typed) hashed {
	h := hashed{File: name, Files: []hashedOne{}}
	for _, e := range m.Files {
		h.Files = append(h.Files, hashedOne{e.Name, nil, e.Sum.String()})
	}
	for i, e := range m.Tensors {
		h.Tensors = append(h.Tensors, hashedOne{e.Name, &types[i], e.Sum.String()})
	}
	return h
}

// sumsOfSource computes the sums of a source: of the files, then of the tensors, for which
// mine is true. types are those of the tensors.
func (c *command) sumsOfSource(name string, tensors bool, mine func() bool) (m *manifest.Manifest, types []typed, err error) {
	src, err := c.opener.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer src.Close()
	if src.Files == nil && !tensors {
		return nil, nil, fmt.Errorf("the bytes of files of %s cannot be read, only its tensors: add --tensors", source.Shown(name))
	}
	var files []source.File
	for _, file := range src.Files {
		if mine() {
			files = append(files, file)
		}
	}
	var names []string
	for _, name := range src.Order {
		if tensors && mine() {
			names = append(names, name)
			types = append(types, typed{src.Tensors[name].DType(), src.Tensors[name].Shape()})
		}
	}
	m, err = c.sums(src, files, names)
	return m, types, err
}

// sums computes the sums of files and tensors, as many concurrently as there are
// processors.
func (c *command) sums(src *source.Checkpoint, files []source.File, names []string) (*manifest.Manifest, error) {
	m := &manifest.Manifest{Files: make([]manifest.Entry, len(files)), Tensors: make([]manifest.Entry, len(names))}
	var jobs []job
	for i, file := range files {
		jobs = append(jobs, job{file.Size, func() (err error) {
			m.Files[i].Name = file.Name
			m.Files[i].Sum, err = fileSum(file)
			return err
		}})
	}
	for i, name := range names {
		t := src.Tensors[name]
		jobs = append(jobs, job{t.Size(), func() (err error) {
			m.Tensors[i] = manifest.Entry{Name: name, Type: t.String()}
			m.Tensors[i].Sum, err = tensorSum(t)
			return err
		}})
	}
	return m, c.work("hash", jobs)
}

func fileSum(file source.File) (sum manifest.Sum, err error) {
	sums, err := hashFile(file, sha256.New(), 0)
	if err == nil {
		copy(sum[:], sums[0])
	}
	return sum, err
}

// hashFile returns the sum of a file, or those of its pieces of a size.
func hashFile(file source.File, h hash.Hash, size int64) (sums [][]byte, err error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	step := 256 << 10 // fits into a cache
	if file.Path == "" {
		step = 4 << 20 // a request each
	}
	buf := make([]byte, min(int64(step), max(file.Size, 512)))
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

func tensorSum(t safetensors.Tensor) (sum manifest.Sum, err error) {
	h := sha256.New()
	io.WriteString(h, t.String()+"\n")
	_, err = t.WriteTo(h)
	h.Sum(sum[:0])
	return sum, err
}

func (c *command) verifySums(name, list string, tensorsOnly, asJSON bool) error {
	want, err := c.readManifest(list)
	if err != nil {
		return err
	}
	if tensorsOnly {
		want.Files = nil
		if len(want.Tensors) == 0 {
			return fmt.Errorf("%s has no sums of tensors", term.Name(list))
		}
	}
	if len(want.Files)+len(want.Tensors) == 0 {
		return fmt.Errorf("%s has no sums", term.Name(list))
	}
	src, err := c.opener.Open(name)
	if err != nil {
		return err
	}
	defer src.Close()
	if src.Files == nil && len(want.Files) > 0 {
		return fmt.Errorf("the bytes of files of %s cannot be read, only its tensors: add --tensors", source.Shown(name))
	}
	have, err := c.sums(src, wantedFiles(src.Files, want.Files), wantedTensors(src, want.Tensors))
	if err != nil {
		return err
	}
	var names []string
	for _, file := range src.Files {
		names = append(names, file.Name)
	}
	v := newVerification(name)
	v.Files = append(v.Files, v.sums(want.Files, have.Files, names)...)
	v.Tensors = v.sums(want.Tensors, have.Tensors, src.Order)
	return c.printVerification(v, asJSON)
}

func (c *command) readManifest(name string) (*manifest.Manifest, error) {
	r := c.opener.Stdin
	if name != "-" {
		f, err := localfile.OpenNamed(c.ctx, name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	m, err := localfile.Await(c.ctx, func() (*manifest.Manifest, error) { return manifest.Read(r) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", term.Name(name), err)
	}
	return m, nil
}

// wantedFiles returns the files that a manifest has.
func wantedFiles(files []source.File, want []manifest.Entry) (wanted []source.File) {
	names := nameSet(want)
	for _, file := range files {
		if names[file.Name] {
			wanted = append(wanted, file)
		}
	}
	return wanted
}

func wantedTensors(src *source.Checkpoint, want []manifest.Entry) (wanted []string) {
	names := nameSet(want)
	for _, name := range src.Order {
		if names[name] {
			wanted = append(wanted, name)
		}
	}
	return wanted
}

func nameSet(entries []manifest.Entry) map[string]bool {
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name] = true
	}
	return names
}

// sums returns a finding on each sum, in the words of sha256sum -c, and on each name that
// the manifest lacks, unless it has no sums of that kind at all.
func (v *verification) sums(want, have []manifest.Entry, names []string) (findings []finding) {
	sums := make(map[string]manifest.Sum, len(have))
	for _, e := range have {
		sums[e.Name] = e.Sum
	}
	for _, e := range want {
		f := finding{e.Name, resultOK, "OK"}
		switch sum, found := sums[e.Name]; {
		case !found:
			f = finding{e.Name, resultMissing, "MISSING"}
		case sum != e.Sum:
			f = finding{e.Name, resultDifferent, "FAILED"}
		}
		v.OK = v.OK && f.Result == resultOK
		findings = append(findings, f)
	}
	known := nameSet(want)
	for _, name := range names {
		if len(known) > 0 && !known[name] {
			findings = append(findings, finding{name, resultUncovered, "NOT IN THE MANIFEST"})
			v.OK = false
		}
	}
	return findings
}
