package main

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/cobra"
)

func (c *command) sign() *cobra.Command {
	var s signature
	cmd := c.verb("sign MODEL --key KEY [--cert LEAF [--chain CA]...] [--out SIG] [--json]", "Sign the files of a model, for the verb verify", `
The signature is one of OpenSSF Model Signing 1.0, which the Python package model-signing
also verifies. KEY is a private key of the curve P-256, P-384 or P-521; --cert adds its
certificate. MODEL is a file or a folder, also in a bucket; for an index, name its folder.
The signature covers all files of MODEL except .git, .gitattributes, .github and
.gitignore at its top, those of --ignore and the signature itself. With --force, SIG may
replace a file, but never KEY, a certificate, or a file of MODEL that is no signature.
verify reports files of --ignore as errors, unless it has the same --ignore or they are
documents.

The keyless method of Sigstore is not supported; cosign and model-signing have it.

--json prints one line:
  {"file": MODEL, "signature": SIG, "files": [the names of the signed files]}
`, `
openssl ecparam -name prime256v1 -genkey -noout -out key.pem
openssl ec -in key.pem -pubout -out key.pub
safetensors sign model --key key.pem
safetensors sign model --key key.pem --cert leaf.pem --chain intermediate.pem
`, arguments(1, 1), func(args []string) error {
		return c.signModel(args[0], s)
	})
	f := cmd.Flags()
	f.StringVar(&s.key, "key", "", "the private key, a `FILE` in PEM")
	f.StringVar(&s.cert, "cert", "", "the certificate of the key, a `FILE` in PEM")
	f.StringArrayVar(&s.chain, "chain", nil, "a `FILE` in PEM with certificates that lead from --cert to a root")
	f.StringVar(&s.file, "out", "", "the `FILE` of the signature (default MODEL.sig)")
	f.BoolVar(&s.force, "force", false, "replace --out")
	s.addIgnore(f)
	return cmd
}

func (c *command) signModel(given string, s signature) error {
	name, err := localfile.Path(given)
	switch {
	case err != nil:
		return err
	case s.key == "":
		return usage("--key is missing; for the keyless method of Sigstore, use: model_signing sign sigstore %s", term.FileWord(name))
	case s.file == "-":
		return usage("--out -: expected the name of a file")
	case s.cert == "" && s.chain != nil:
		return usage("--chain needs --cert")
	}
	key, err := readParsed(c.ctx, s.key, maxPEM, modelsig.ParsePrivateKey)
	if errors.Is(err, modelsig.ErrEncrypted) {
		err = fmt.Errorf("%w: decrypt it, as with --key <(openssl pkey -in %s)", err, term.FileWord(s.key))
	}
	if err != nil {
		return err
	}
	var chain []*x509.Certificate
	if s.cert != "" {
		if chain, err = readCertificates(c.ctx, append([]string{s.cert}, s.chain...)); err != nil {
			return err
		}
		public, err := modelsig.CheckLeaf(chain[0])
		if err != nil {
			return fmt.Errorf("%s: %w", term.Name(s.cert), err)
		}
		if !public.Equal(&key.PublicKey) {
			return fmt.Errorf("%s is not the certificate of the key %s", term.Name(s.cert), term.Name(s.key))
		}
	}
	if s.file == "" {
		if s.file, err = signaturePath(name); err != nil {
			return err
		}
	}
	if err := checkFolder("out", s.file); err != nil {
		return err
	}
	if err := c.checkOut(name, s); err != nil {
		return err
	}
	if _, err := os.Lstat(s.file); err == nil && !s.force {
		return fmt.Errorf("%s exists; --force replaces it", term.Name(s.file))
	}
	m, err := c.manifestOf(name, s)
	if err != nil {
		return err
	}
	bundle, err := modelsig.Sign(m, key, chain)
	if err != nil {
		return err
	}
	if err := dest.WriteFile(s.file, dest.Writing(bundle)); err != nil {
		return err
	}
	done := signing{File: given, Signature: s.file}
	for _, f := range m.Files {
		done.Files = append(done.Files, f.Name)
	}
	return c.print(done, func() { fmt.Fprintf(c.stderr, "%s: %s\n", term.Name(s.file), term.Plural(len(m.Files), "file")) })
}

// checkOut returns an error if the signature would replace the key, a certificate, the model or a file of it, under any
// name. It may replace a signature in the folder of the model.
func (c *command) checkOut(model string, s signature) error {
	out, err := os.Stat(s.file)
	if err != nil { // nothing is replaced
		return nil
	}
	is := func(name, what string) error {
		if info, err := os.Stat(name); err != nil || !os.SameFile(out, info) {
			return nil
		}
		return usage("--out %s is %s %s, which the signature would replace", term.Name(s.file), what, term.Name(name))
	}
	err = cmp.Or(is(s.key, "the key"), is(s.cert, "the certificate"), is(model, "the model"))
	for _, name := range s.chain {
		err = cmp.Or(err, is(name, "the certificate"))
	}
	if info, failed := os.Stat(model); err != nil || failed != nil || !info.IsDir() || c.isSignature(s.file) {
		return err
	}
	if _, in := within(s.file, model); in {
		return usage("--out %s is a file of the model %s and not a signature", term.Name(s.file), term.Name(model))
	}
	ignored := slices.Concat(modelsig.DefaultIgnorePaths, s.ignore)
	tree, err := c.opener.Tree(model, s.follow, func(path string) bool { return modelsig.Ignored(path, ignored) })
	if err != nil {
		return err
	}
	for _, f := range tree.Files {
		if err := is(filepath.Join(model, filepath.FromSlash(f.Name)), "the file of the model"); err != nil {
			return err
		}
	}
	return nil
}

// A signing is the result of sign. Its fields are the JSON that sign prints.
type signing struct {
	File      string   `json:"file"` // name on the command line
	Signature string   `json:"signature"`
	Files     []string `json:"files"`
}

// signaturePath returns the default name of the signature, next to a local model.
func signaturePath(name string) (_ string, err error) {
	if strings.Contains(name, "://") {
		return "", usage("--out is missing")
	}
	name = filepath.Clean(name)
	if base := filepath.Base(name); base == "." || base == ".." {
		name, err = filepath.Abs(name)
	}
	return name + ".sig", err
}

// manifestOf returns the manifest of a model for a signature. It hashes all files.
func (c *command) manifestOf(name string, s signature) (*modelsig.Manifest, error) {
	for _, path := range s.ignore {
		if !fs.ValidPath(path) || path == "." || strings.ContainsAny(path, "*?[") {
			return nil, usage("--ignore %s: expected a path in the model, with slashes, without * ? [", term.Name(path))
		}
	}
	m := &modelsig.Manifest{Hash: "sha256", AllowSymlinks: s.follow, IgnorePaths: s.ignored(name)}
	found := make(map[string]bool)
	tree, err := c.signedTree(name, s.follow, func(path string) bool {
		if slices.Contains(s.ignore, path) {
			found[path] = true
		}
		return modelsig.Ignored(path, m.IgnorePaths)
	})
	if err != nil {
		return nil, err
	}
	for _, path := range s.ignore {
		within := strings.LastIndexByte(path, '/')
		if !found[path] && (within < 0 || !modelsig.Ignored(path[:within], m.IgnorePaths)) { // nothing in an ignored folder is listed
			return nil, fmt.Errorf("--ignore %s: %s has no such file or folder", term.Name(path), storage.Shown(name))
		}
	}
	m.Model = tree.Name
	if len(tree.Links) > 0 && s.follow {
		return nil, fmt.Errorf("%s: the link %s leads nowhere", storage.Shown(name), term.Name(tree.Links[0]))
	}
	if len(tree.Links) > 0 {
		return nil, fmt.Errorf("%s: %s is a symbolic link: --allow-symlinks follows it, --ignore leaves it out", storage.Shown(name), term.Name(tree.Links[0]))
	}
	sums, err := c.hashFiles(tree.Files, 0, func(storage.File) hash.Hash { return sha256.New() })
	if err != nil {
		return nil, err
	}
	for i, f := range tree.Files {
		m.Files = append(m.Files, modelsig.File{Name: f.Name, Sums: sums[i]})
	}
	missing, err := uncovered(tree.Files, m)
	if err == nil && len(missing) > 0 && tree.Single {
		return nil, fmt.Errorf("%s is an index, and its shards would not be signed: name the folder", storage.Shown(name))
	}
	if err == nil && len(missing) > 0 {
		what := "is not there"
		if modelsig.Ignored(missing[0].file, m.IgnorePaths) {
			what = "would not be signed"
		}
		err = fmt.Errorf("%s names %s, which %s", term.Name(missing[0].index), term.Name(missing[0].file), what)
	}
	return m, err
}
