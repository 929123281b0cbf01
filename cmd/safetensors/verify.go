package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/report"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/spf13/cobra"
)

func (c *command) verify() *cobra.Command {
	var tensors bool
	var only, except []string
	var signed signature
	var hub string
	cmd := c.verb("verify SRC MANIFEST | --signature SIG ... | --hub REPO", "Compare with a manifest, a signature or the hub's sums", `
A MANIFEST is the output of safetensors hash or of sha256sum, or - for standard input.
Its names are relative to SRC, as if sha256sum ran in that folder. If the manifest lists
files, a file of the model in SRC that is not among them is an error. The files of the
model are those that hash lists. Other weights in the folder, such as an adapter or
pytorch_model.bin next to model.safetensors, are printed as NOT IN THE MANIFEST, beside
the model. In a folder with several models, such as a pipeline, other weights in any
folder below are printed, too. With a manifest, other weights are not errors, although
another program may load them; with a signature they are.
If the manifest lists tensors, a tensor of SRC that is not among them is an error, too.
The other names of a tied tensor, which the metadata of SRC lists, may be in the manifest.
When tensors are compared, one that cannot be read is an error unless --only or --except
leaves it out.

A signature is one of OpenSSF Model Signing, made with a key or a certificate. All files
of SRC are compared, also those without tensors. SRC is a file, a folder, either of them
in a bucket, or the URL of a file. Trust comes from --public-key or from the roots in
--chain, never from the signature itself. A signature lists what sign --ignore left out:
each such file is printed as LEFT OUT BY THE SIGNATURE. It is an error unless --ignore of
verify names it, too, or it is a document, such as README.md. --ignore-unsigned-files
also accepts documents that the signature does not mention.

With --hub, local files are compared with the sums that the hub publishes; only sums are
downloaded. If SRC is hf://OWNER/NAME[@REVISION], the files in the cache of the Python
tools are compared. A download by cp with --max-shard-size or --dtype has new files, which
the hub does not know.

The exit code is 1 if anything is different, missing or not covered. The page
doc/integrity.md explains what each of the three proves.

--json prints one line:
  {"file": "...", "ok": false, "signed_by": "..." with a signature,
   "files": [{"name", "result"}, ...], "tensors": [{"name", "result"}, ...] if compared,
   "absent": the number of files that the hub has and SRC lacks, if any,
   "unread": [{"file", "name", "reason"}, ...]}: present if tensors cannot be read; then
   nothing is compared
The result is "ok", "different", "missing" (from SRC), "uncovered" (by the manifest, the
signature or the hub), "ignored" (uncovered, and accepted) or "link" (a symbolic link that
is not followed).
`+sources, `
safetensors verify model model.sha256
safetensors verify merged.safetensors model.sha256 --tensors
safetensors verify model --signature model.sig --public-key key.pub
safetensors verify model --signature model.sig --chain root.pem
safetensors verify hf://mistralai/Mistral-7B-v0.3
safetensors verify mistral --hub mistralai/Mistral-7B-v0.3@main
`, cobra.MatchAll(oneSource, arguments(1, 2), stdinOnce), func(args []string) error {
		onHub := hub != "" || len(args) == 1 && strings.HasPrefix(args[0], "hf://") && !signed.trust()
		switch {
		case c.opener.Key != "" && signed.given():
			return usage("--key is for PyTorch files; the key of a signature is --public-key %s", term.FileWord(c.opener.Key))
		case signed.ignore != nil && !signed.trust() && !onHub:
			return usage("--ignore needs --signature or --hub")
		case len(only) > 0 && (onHub || signed.given()):
			return usage("--only can be used only with a MANIFEST")
		case len(except) > 0 && (onHub || signed.given()):
			return usage("--except can be used only with a MANIFEST")
		case c.opener.Variant != "" && (onHub || signed.given()):
			return usage("--variant can be used only with a MANIFEST")
		case hub != "" && len(args) > 1:
			return usage("--hub takes no MANIFEST, and got %q", args[1])
		case hub != "" && (tensors || signed.trust()):
			return usage("--hub cannot be combined with --tensors or --signature")
		case onHub:
			return c.verifyHub(args[0], hub, signed.ignore)
		case signed.trust() && signed.file == "" && len(args) == 2 && c.isSignature(args[1]):
			return usage("%s is a signature: --signature %s", term.Name(args[1]), term.FileWord(args[1]))
		case signed.trust() && signed.file == "":
			return usage("--%s needs --signature", signed.flag())
		case signed.given() && (len(args) > 1 || tensors):
			return usage("a signature is verified alone, without a manifest or --tensors")
		case signed.given():
			return c.verifySignature(args[0], signed)
		case len(args) == 2:
			selection, err := pattern.ParseSelection(only, except)
			if err != nil {
				return usageError{err}
			}
			return c.verifySums(args[0], args[1], tensors, selection)
		}
		return usage("expected a MANIFEST, --signature or --hub")
	})
	cmd.Flags().BoolVar(&tensors, "tensors", false, "with a MANIFEST: compare only tensors, so that files may be merged or split")
	cmd.Flags().StringArrayVar(&only, "only", nil, "with a MANIFEST: compare only those tensors that match `PATTERN`")
	cmd.Flags().StringArrayVar(&except, "except", nil, "with a MANIFEST: leave out tensors that match `PATTERN`")
	cmd.Flags().StringVar(&hub, "hub", "", "compare with the sums of the repository `OWNER/NAME[@REVISION]` on the hub")
	signed.add(cmd.Flags())
	return cmd
}

// oneSource returns an error if verify has several sources.
func oneSource(_ *cobra.Command, args []string) error {
	if len(args) > 2 {
		return usage("expected one SRC and a MANIFEST, got %d arguments: for several files, SRC is their folder", len(args))
	}
	return nil
}

// A verification is the result of verify. Its fields are also the JSON that verify prints.
type verification struct {
	File     string    `json:"file"` // name on the command line
	OK       bool      `json:"ok"`
	SignedBy string    `json:"signed_by,omitempty"`
	Files    []finding `json:"files"`
	Tensors  []finding `json:"tensors,omitempty"`
	Absent   int       `json:"absent,omitempty"`

	Unread []report.Unread `json:"unread,omitempty"`
}

// A finding is the result of comparing a file or a tensor. words is the result in the printed text.
type finding struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	words  string
}

// These are the values of finding.Result.
const (
	resultOK        = "ok"
	resultDifferent = "different"
	resultMissing   = "missing"
	resultUncovered = "uncovered"
	resultIgnored   = "ignored"
	resultLink      = "link"
)

// printVerification prints a line for each finding, in the form of sha256sum -c. It returns wrong if that
// is not nil, and errDifferent if a finding is bad.
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

func (c *command) verifySums(name, list string, tensorsOnly bool, selection pattern.Selection) error {
	want, err := c.readManifest(name, list)
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
	open := c.opener.OpenFiles
	if len(want.Tensors) > 0 {
		open = c.opener.OpenRead
	}
	src, _, err := c.openAll(name, open)
	if err != nil && len(want.Tensors) == 0 && selection.IsZero() && c.ctx.Err() == nil {
		return c.verifyFiles(name, want.Files, err)
	}
	if err != nil {
		return err
	}
	defer src.Close()
	src = withNamesOf(src, namesIn(want.Tensors))
	order, err := c.tensorsToVerify(src, want, selection)
	if err != nil {
		return err
	}
	inFiles, inTensors := namesIn(want.Files), namesIn(want.Tensors)
	files := slices.DeleteFunc(slices.Clone(src.Files), func(f storage.File) bool { return !inFiles[f.Name] })
	for _, f := range files {
		delete(inFiles, f.Name)
	}
	if len(inFiles) > 0 && src.Files[0].Path != "" { // the source is on this machine
		others, err := c.listed(src.Name, inFiles)
		if err != nil {
			return err
		}
		files = append(files, others...)
	}
	have, err := c.sums(src, files, slices.DeleteFunc(slices.Clone(order), func(name string) bool { return !inTensors[name] }))
	if err != nil {
		return err
	}
	var names []string
	for _, file := range src.Files {
		names = append(names, file.Name)
	}
	c.noteFolder(want.Files, names)
	v := &verification{File: name, Files: compareSums(want.Files, have.Files, names), Tensors: compareSums(want.Tensors, have.Tensors, order)}
	if len(want.Files) > 0 {
		all, err := c.weightsAround(src)
		if err != nil && src.Files[0].Path != "" { // who may read the files of a bucket may not be allowed to list them
			return err
		}
		v.Files = append(v.Files, unlisted(all, names, want.Files)...)
	}
	return c.printVerification(v, nil)
}

// tensorsToVerify returns the names of the selected tensors of a source, and removes all others
// from the manifest. If tensors are compared, it is an error if a selected one cannot be read.
func (c *command) tensorsToVerify(src *source.Checkpoint, want *manifest.Manifest, selection pattern.Selection) ([]string, error) {
	all := namesOf(src)
	for _, e := range want.Tensors {
		all = append(all, e.Name)
	}
	names, err := c.selectTensors(src, selection, all)
	if err != nil || len(want.Tensors) == 0 {
		return src.Order, err
	}
	if missing, err := unread(src, names); err != nil {
		v := &verification{File: src.Name, Files: []finding{}, Unread: missing}
		return nil, cmp.Or(c.print(v, func() {}), err)
	}
	selected := make(map[string]bool, len(names))
	for _, name := range names {
		selected[name] = true
	}
	want.Tensors = slices.DeleteFunc(want.Tensors, func(e manifest.Entry) bool { return !selected[e.Name] })
	order := slices.DeleteFunc(slices.Clone(src.Order), func(name string) bool { return !selected[name] })
	if len(want.Tensors) == 0 && len(order) > 0 { // otherwise nothing would be compared
		return nil, errors.New("the manifest has no sum of a selected tensor")
	}
	return order, nil
}

// listed returns the files of a source that have these names. sha256sum also lists files next to
// the weights.
func (c *command) listed(name string, names map[string]bool) ([]storage.File, error) {
	if strings.HasPrefix(name, "hf://") {
		if _, _, file, err := storage.SplitHub(name); file != "" || err != nil {
			return nil, err // the source is a single file, so nothing next to it belongs to it
		}
	}
	above := make(map[string]bool) // folders that contain the files
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

// sha256Sum matches a SHA-256 sum.
var sha256Sum = lazyregexp.New(`^[0-9a-fA-F]{64}$`)

// readManifest reads the manifest with this name. src is the name of the source, for errors.
func (c *command) readManifest(src, name string) (*manifest.Manifest, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		if other, err := os.Stat(src); err == nil && other.IsDir() {
			return nil, usage("%s is a folder and no manifest; to compare two models: diff %s %s", term.Name(name), term.FileWord(src), term.FileWord(name))
		}
		return nil, usage("%s is a folder: expected SRC before MANIFEST", term.Name(name))
	}
	r := c.opener.Stdin
	if name != "-" {
		f, err := localfile.OpenNamed(c.ctx, name)
		if errors.Is(err, fs.ErrNotExist) && sha256Sum().MatchString(name) {
			return nil, usage("a MANIFEST is a file, with the name of a file after each sum: echo \"%s  NAME\" | safetensors verify SRC -", name)
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	m, err := localfile.Await(c.ctx, func() (*manifest.Manifest, error) { return manifest.Read(r) })
	if err != nil {
		err = fmt.Errorf("%s is not a manifest: %w", term.Name(name), err)
		if strings.HasSuffix(name, ".sig") || c.isSignature(name) {
			err = fmt.Errorf("%w; for a signature: --signature %s", err, term.FileWord(name))
		} else if f := format.ByName(name); f != nil && f.Open != nil || f == format.Safetensors {
			err = fmt.Errorf("%w; SRC comes first: verify SRC MANIFEST", err)
		}
		return nil, err
	}
	return m, nil
}

// noteFolder notes that a manifest has a file of the source under a longer name, with the folders above it. The program
// sha256sum writes such names if it runs outside the folder.
func (c *command) noteFolder(want []manifest.Entry, names []string) {
	const most = 100 // a manifest has such names for all files or for none
	for _, e := range want[:min(len(want), most)] {
		for _, name := range names {
			if strings.HasSuffix(e.Name, "/"+name) && !slices.Contains(names, e.Name) {
				c.opener.Note(fmt.Sprintf("the manifest names %s as %s: run sha256sum in the folder of the file", term.Name(name), term.Name(e.Name)))
				return
			}
		}
	}
}

func namesIn(entries []manifest.Entry) map[string]bool {
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name] = true
	}
	return names
}

// compareSums returns a finding for each sum, and for each name that the manifest lacks. If the
// manifest has no sums of this kind, there are no findings for names.
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
			found = append(found, finding{e.Name, resultDifferent, "DIFFERS"})
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
