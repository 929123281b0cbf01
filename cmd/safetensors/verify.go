package main

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) verify() *cobra.Command {
	var tensors bool
	var signed signature
	var hub string
	cmd := c.verb("verify SRC MANIFEST | --signature SIG ... | --hub REPO", "Compare with a manifest, a signature or the hub's sums", `
With a MANIFEST of the verb hash, or of sha256sum: files are found by their names in SRC.
A file or a tensor of SRC that the manifest lacks is reported, too, unless it lists no
files, or no tensors. MANIFEST may be - for standard input.

With a signature of OpenSSF Model Signing, by a key or by a certificate: all files of SRC
are compared, not only those of tensors. SRC is a file or a folder, in a bucket too, or
the URL of a file. Trust comes from --public-key, or from the roots in --chain, never
from the signature itself.

With the hub: local files are compared with the sums that the hub publishes, and nothing
but those is downloaded. SRC may be hf://OWNER/NAME[@REVISION] for the files in the cache
of the Python tools.

The exit code is 1 if anything is different, missing or not covered. The page
doc/integrity.md says what each of the three proves.

--json prints one line:
  {"file": "...", "ok": false, "signed_by": "..." with a signature,
   "files": [{"name", "result"}, ...], "tensors": [{"name", "result"}, ...] if compared,
   "absent": how many files of the hub are not here, if any}
where the result is "ok", "different", "missing" (from SRC), "uncovered" (by the
manifest, the signature or the hub), "ignored" (uncovered, --ignore-unsigned-files) or
"link" (a symbolic link that is not followed).
`+sources, `
safetensors verify model model.sha256
safetensors verify merged.safetensors model.sha256 --tensors
safetensors verify model --signature model.sig --public-key key.pub
safetensors verify model --signature model.sig --chain root.pem
safetensors verify hf://mistralai/Mistral-7B-v0.3
safetensors verify mistral --hub mistralai/Mistral-7B-v0.3@main
`, cobra.MatchAll(arguments(1, 2), stdinOnce), func(args []string) error {
		onHub := hub != "" || len(args) == 1 && strings.HasPrefix(args[0], "hf://") && !signed.trust()
		switch {
		case c.opener.Variant != "" && (onHub || signed.given()):
			return usage("--variant goes with a MANIFEST only")
		case hub != "" && (len(args) > 1 || tensors || signed.trust()):
			return usage("--hub goes with --ignore only")
		case onHub:
			return c.verifyHub(args[0], hub, signed.ignore)
		case signed.given() && (len(args) > 1 || tensors):
			return usage("a signature is verified alone, without a manifest or --tensors")
		case signed.given():
			return c.verifySignature(args[0], signed)
		case len(args) == 2:
			return c.verifySums(args[0], args[1], tensors)
		}
		return usage("expected a MANIFEST, --signature or --hub")
	})
	cmd.Flags().BoolVar(&tensors, "tensors", false, "with a MANIFEST: compare tensors only, files may be merged or split")
	cmd.Flags().StringVar(&hub, "hub", "", "compare with the sums of the repository `OWNER/NAME[@REVISION]` on the hub")
	signed.add(cmd.Flags())
	return cmd
}

// A verification is what verify found. Its fields are those of the JSON form.
type verification struct {
	File     string    `json:"file"` // as named on the command line
	OK       bool      `json:"ok"`
	SignedBy string    `json:"signed_by,omitempty"`
	Files    []finding `json:"files"`
	Tensors  []finding `json:"tensors,omitempty"`
	Absent   int       `json:"absent,omitempty"`
}

// A finding is the result of comparing a file or a tensor, and the words of the text
// form for it.
type finding struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	words  string
}

// The results.
const (
	resultOK        = "ok"
	resultDifferent = "different"
	resultMissing   = "missing"
	resultUncovered = "uncovered"
	resultIgnored   = "ignored"
	resultLink      = "link"
)

// printVerification prints a line for each finding, as sha256sum -c does. It fails if one is bad.
// It returns wrong, if that is an error.
func (c *command) printVerification(v *verification, wrong error) error {
	bad := func(f finding) bool { return f.Result != resultOK && f.Result != resultIgnored }
	v.OK = wrong == nil && !slices.ContainsFunc(slices.Concat(v.Files, v.Tensors), bad)
	err := c.print(v, func() {
		if v.SignedBy != "" {
			fmt.Fprintf(c.out, "signed by %s\n", v.SignedBy)
		}
		for _, f := range v.Files {
			fmt.Fprintf(c.out, "%s: %s\n", term.Name(f.Name), f.words)
		}
		for _, f := range v.Tensors {
			fmt.Fprintf(c.out, "tensor %s: %s\n", term.Name(f.Name), f.words)
		}
		if v.Absent > 0 {
			fmt.Fprintf(c.out, "on the hub, but not here: %d\n", v.Absent)
		}
	})
	if err = cmp.Or(wrong, err); err == nil && !v.OK {
		err = errDifferent
	}
	return err
}

func (c *command) verifySums(name, list string, tensorsOnly bool) error {
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
	inFiles, inTensors := namesIn(want.Files), namesIn(want.Tensors)
	files := slices.DeleteFunc(slices.Clone(src.Files), func(f storage.File) bool { return !inFiles[f.Name] })
	for _, f := range files {
		delete(inFiles, f.Name)
	}
	if len(inFiles) > 0 && src.Files[0].Path != "" { // of this machine
		others, err := c.listed(src.Name, inFiles)
		if err != nil {
			return err
		}
		files = append(files, others...)
	}
	have, err := c.sums(src, files, slices.DeleteFunc(slices.Clone(src.Order), func(name string) bool { return !inTensors[name] }))
	if err != nil {
		return err
	}
	var names []string
	for _, file := range src.Files {
		names = append(names, file.Name)
	}
	return c.printVerification(&verification{
		File: name, Files: compareSums(want.Files, have.Files, names), Tensors: compareSums(want.Tensors, have.Tensors, src.Order),
	}, nil)
}

// listed returns the files with those names: sha256sum lists those next to the weights, too.
func (c *command) listed(name string, names map[string]bool) ([]storage.File, error) {
	if strings.HasPrefix(name, "hf://") {
		if _, _, file, err := storage.SplitHub(name); file != "" || err != nil {
			return nil, err // a file has none next to it
		}
	}
	above := make(map[string]bool) // the folders
	for name := range names {
		for dir := path.Dir(name); dir != "." && dir != "/" && !above[dir]; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	tree, err := c.opener.Tree(name, true, func(name string) bool { return !names[name] && !above[name] })
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(tree.Files, func(f storage.File) bool { return !names[f.Name] }), nil
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

func namesIn(entries []manifest.Entry) map[string]bool {
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name] = true
	}
	return names
}

// compareSums returns a finding on each sum, in the words of sha256sum -c, and on each name that
// the manifest lacks, unless it has no sums of that kind at all.
func compareSums(want, have []manifest.Entry, names []string) []finding {
	found := []finding{}
	sums := make(map[string]manifest.Sum, len(have))
	for _, e := range have {
		sums[e.Name] = e.Sum
	}
	for _, e := range want {
		switch sum, here := sums[e.Name]; {
		case !here:
			found = append(found, finding{e.Name, resultMissing, "MISSING"})
		case sum != e.Sum:
			found = append(found, finding{e.Name, resultDifferent, "FAILED"})
		default:
			found = append(found, finding{e.Name, resultOK, "OK"})
		}
	}
	known := namesIn(want)
	for _, name := range names {
		if len(known) > 0 && !known[name] {
			found = append(found, finding{name, resultUncovered, "NOT IN THE MANIFEST"})
		}
	}
	return found
}
