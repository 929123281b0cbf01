package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/pflag"
)

type signatureFlags struct {
	file      string
	publicKey string
	chain     []string
	ignore    []string
	follow    bool
	unsigned  bool
}

func (s *signatureFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.file, "signature", "", "the signature, a `FILE`")
	f.StringVar(&s.publicKey, "public-key", "", "with --signature: the public key to trust, a `FILE` in PEM")
	f.StringArrayVar(&s.chain, "chain", nil, "with --signature: the root certificates to trust, and those that lead to them, `FILES` in PEM")
	f.BoolVar(&s.unsigned, "ignore-unsigned-files", false, "with --signature: accept unsigned files that no loader reads: documents, pictures, other signatures")
	addIgnore(f, &s.ignore, &s.follow)
}

// trust reports whether there are flags of a signature, given whether there are any.
func (s *signatureFlags) trust() bool {
	return s.file != "" || s.publicKey != "" || s.chain != nil || s.follow || s.unsigned
}

func (s *signatureFlags) given() bool { return s.trust() || s.ignore != nil }

func (c *command) verifySignature(name string, s signatureFlags) error {
	v := newVerification(name)
	name, err := localfile.Path(name)
	switch {
	case err != nil:
		return err
	case s.file == "":
		return usage("--signature is missing")
	case (s.publicKey == "") == (s.chain == nil):
		return usage("expected --public-key or --chain: whom do you trust?")
	}
	m, who, err := openSignature(c.ctx, s)
	if err != nil {
		return err
	}
	v.SignedBy = who
	ignore := slices.Concat(modelsig.DefaultIgnorePaths, m.IgnorePaths, s.ignore)
	if own, ok := within(s.file, name); ok {
		ignore = append(ignore, own)
	}
	tree, err := c.opener.Tree(name, s.follow || m.AllowSymlinks, func(name string) bool {
		return modelsig.Ignored(name, ignore) && !m.Covers(name)
	})
	if err != nil {
		return err
	}
	c.warnOutside(tree)
	wrong := c.compareSigned(v, tree, m, s)
	if wrong != nil && len(v.Files) == 0 {
		return wrong
	}
	v.OK = v.OK && wrong == nil
	if err := c.printVerification(v); wrong == nil {
		return err
	}
	return wrong
}

// openSignature reads a signature and returns what it says, and who says it.
func openSignature(ctx context.Context, s signatureFlags) (m *modelsig.Manifest, who string, err error) {
	b, err := readParsed(ctx, s.file, modelsig.MaxSize, modelsig.Parse)
	if errors.Is(err, modelsig.ErrKeyless) {
		return nil, "", fmt.Errorf("%w; the signature alone can be verified with: cosign verify-blob-attestation --bundle %s "+
			"--type https://model_signing/signature/v1.0 --check-claims=false --certificate-identity WHO --certificate-oidc-issuer ISSUER", err, term.Name(s.file))
	}
	if err != nil {
		return nil, "", err
	}
	if s.publicKey != "" {
		key, err := readParsed(ctx, s.publicKey, maxPEM, modelsig.ParsePublicKey)
		if err != nil {
			return nil, "", err
		}
		if m, err = b.VerifyKey(key); err != nil {
			return nil, "", fmt.Errorf("%s: %w", term.Name(s.file), err)
		}
		return m, "the key " + term.Name(s.publicKey), nil
	}
	roots, err := readCertificates(ctx, s.chain)
	if err != nil {
		return nil, "", err
	}
	m, leaf, err := b.VerifyChain(roots, time.Now())
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", term.Name(s.file), err)
	}
	return m, fmt.Sprintf("%s, by the word of %s", term.Name(leaf.Subject.String()), term.Name(leaf.Issuer.String())), nil
}

// compareSigned adds a finding on each file.
func (c *command) compareSigned(v *verification, tree *storage.Tree, m *modelsig.Manifest, s signatureFlags) error {
	if tree.Single && len(m.Files) == 1 && m.Files[0].Name == modelsig.SingleFile {
		m.Files[0].Name = tree.Name
	}
	signed, found := make(map[string]modelsig.File, len(m.Files)), make(map[string]finding)
	put := func(name, result, words string) { found[name] = finding{name, result, words} }
	for _, f := range m.Files {
		signed[f.Name] = f
		put(f.Name, resultMissing, "MISSING")
	}
	var have []storage.File
	for _, file := range tree.Files {
		switch _, ok := signed[file.Name]; {
		case ok:
			have = append(have, file)
		case s.unsigned && harmless(file.Name):
			put(file.Name, resultIgnored, "NOT SIGNED, ignored")
		default:
			put(file.Name, resultUncovered, "NOT SIGNED")
		}
	}
	for _, name := range tree.Links {
		put(name, resultLink, "SYMBOLIC LINK")
	}
	sums, err := c.sumsOf(have, m)
	if err != nil {
		return err
	}
	for i, file := range have {
		put(file.Name, resultDifferent, "DIFFERS")
		if slices.EqualFunc(sums[i], signed[file.Name].Sums, bytes.Equal) {
			put(file.Name, resultOK, "OK")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		v.add(name, found[name].Result, found[name].words)
	}
	missing, err := uncovered(tree.Files, setOf(m.Files, func(f modelsig.File) string { return f.Name }))
	for _, x := range missing {
		v.add(x.file, resultUncovered, "NOT SIGNED, but "+term.Name(x.index)+" names it")
	}
	return err
}

// harmlessFiles are names and endings of files that people read, not programs that load a model.
// All others can matter, as weights, indexes, configurations, vocabularies and code do.
var harmlessFiles = []string{
	"README", "README.txt", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt",
	".md", ".rst", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".sig", ".sha256",
}

// harmless reports whether an unsigned file can be ignored.
func harmless(name string) bool {
	base := path.Base(name)
	return slices.Contains(harmlessFiles, base) || slices.Contains(harmlessFiles, path.Ext(base))
}
