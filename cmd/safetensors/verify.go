package main

import (
	"github.com/spf13/cobra"
)

func (c *command) verify() *cobra.Command {
	var tensors bool
	var signed signatureFlags
	cmd := c.verb("verify SRC MANIFEST | --signature SIG ...", "Compare with a manifest or a signature", `
With a MANIFEST of the verb hash, or of sha256sum: files are found by their names in SRC.
A tensor that the manifest does not have is reported only if the manifest has some.
MANIFEST may be - for standard input.

With a signature of OpenSSF Model Signing, by a key or by a certificate: all files of SRC
are compared, not only those of tensors. SRC is a file or a folder, in a bucket too, or
the URL of a file. Trust comes from --public-key, or from the roots in --chain, never
from the signature itself.

The exit code is 1 if anything is different, missing or not covered. The page
doc/integrity.md says what each of them proves.
`+sources, `
safetensors verify model model.sha256
safetensors verify merged.safetensors model.sha256 --tensors
safetensors verify model --signature model.sig --public-key key.pub
safetensors verify model --signature model.sig --chain root.pem
`, cobra.RangeArgs(1, 2), func(args []string) error {
		switch {
		case signed.given() && (len(args) > 1 || tensors):
			return usage("a signature is verified alone, without a manifest or --tensors")
		case signed.given():
			return c.verifySignature(args[0], signed)
		case len(args) == 2:
			return c.verifySums(args[0], args[1], tensors)
		}
		return usage("expected a MANIFEST or --signature")
	})
	cmd.Flags().BoolVar(&tensors, "tensors", false, "with a MANIFEST: compare tensors only, files may be merged or split")
	signed.add(cmd.Flags())
	return cmd
}
