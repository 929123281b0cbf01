package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) verify() *cobra.Command {
	var tensors, asJSON bool
	var signed signatureFlags
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
			return c.verifyHub(args[0], hub, signed.ignore, asJSON)
		case signed.given() && (len(args) > 1 || tensors):
			return usage("a signature is verified alone, without a manifest or --tensors")
		case signed.given():
			return c.verifySignature(args[0], signed, asJSON)
		case len(args) == 2:
			return c.verifySums(args[0], args[1], tensors, asJSON)
		}
		return usage("expected a MANIFEST, --signature or --hub")
	})
	cmd.Flags().BoolVar(&tensors, "tensors", false, "with a MANIFEST: compare tensors only, files may be merged or split")
	cmd.Flags().StringVar(&hub, "hub", "", "compare with the sums of the repository `OWNER/NAME[@REVISION]` on the hub")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON")
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

func newVerification(name string) *verification {
	return &verification{File: name, OK: true, Files: []finding{}}
}

// printVerification prints what was found, and fails unless all is good.
func (c *command) printVerification(v *verification, asJSON bool) (err error) {
	if asJSON {
		err = term.PrintJSON(c.out, v)
	} else {
		v.print(c.out)
	}
	if err == nil && !v.OK {
		err = errDifferent
	}
	return err
}

// print prints a line for each finding, as sha256sum -c does.
func (v *verification) print(w io.Writer) {
	if v.SignedBy != "" {
		fmt.Fprintf(w, "signed by %s\n", v.SignedBy)
	}
	for _, f := range v.Files {
		fmt.Fprintf(w, "%s: %s\n", term.Name(f.Name), f.words)
	}
	for _, f := range v.Tensors {
		fmt.Fprintf(w, "tensor %s: %s\n", term.Name(f.Name), f.words)
	}
	if v.Absent > 0 {
		fmt.Fprintf(w, "on the hub, but not here: %d\n", v.Absent)
	}
}
