package main

import (
	"strings"

	"github.com/spf13/cobra"
)

func (c *command) verify() *cobra.Command {
	var tensors bool
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
`+sources, `
safetensors verify model model.sha256
safetensors verify merged.safetensors model.sha256 --tensors
safetensors verify model --signature model.sig --public-key key.pub
safetensors verify model --signature model.sig --chain root.pem
safetensors verify hf://mistralai/Mistral-7B-v0.3
safetensors verify mistral --hub mistralai/Mistral-7B-v0.3@main
`, cobra.RangeArgs(1, 2), func(args []string) error {
		switch {
		case hub != "" && (len(args) > 1 || tensors || signed.trust()):
			return usage("--hub goes with --ignore only")
		case hub != "" || len(args) == 1 && strings.HasPrefix(args[0], "hf://") && !signed.trust():
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
