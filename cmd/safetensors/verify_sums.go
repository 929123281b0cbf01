package main

import (
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

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
	inFiles, inTensors := nameSet(want.Files), nameSet(want.Tensors)
	files := slices.DeleteFunc(slices.Clone(src.Files), func(f source.File) bool { return !inFiles[f.Name] })
	have, err := c.sums(src, files, slices.DeleteFunc(slices.Clone(src.Order), func(name string) bool { return !inTensors[name] }))
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
