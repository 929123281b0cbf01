package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/spf13/pflag"
)

func (s *signature) add(f *pflag.FlagSet) {
	f.StringVar(&s.file, "signature", "", "the signature, a `FILE`")
	f.StringVar(&s.key, "public-key", "", "with --signature: the public key to trust, a `FILE` in PEM")
	f.StringArrayVar(&s.chain, "chain", nil, "with --signature: a `FILE` in PEM with root certificates to trust, or with certificates that lead to them")
	f.BoolVar(&s.unsigned, "ignore-unsigned-files", false, "with --signature: accept unsigned README, LICENSE and NOTICE files, pictures, and files that end in .md, .rst, .pdf, .sig or .sha256; a loader may read any other file, even .txt")
	s.addIgnore(f)
	f.Lookup("ignore").Usage = "with --signature or --hub: leave out the file or folder `PATH` of SRC"
	f.Lookup("allow-symlinks").Usage = "with --signature: follow symbolic links"
}

// trust reports whether a flag of a signature is set, other than --ignore; given includes --ignore.
func (s *signature) trust() bool {
	return s.file != "" || s.key != "" || s.chain != nil || s.follow || s.unsigned
}

// flag returns the name of a flag that trust has found, if there is no --signature.
func (s *signature) flag() string {
	switch {
	case s.key != "":
		return "public-key"
	case s.chain != nil:
		return "chain"
	case s.follow:
		return "allow-symlinks"
	}
	return "ignore-unsigned-files"
}

func (s *signature) given() bool { return s.trust() || s.ignore != nil }

func (c *command) verifySignature(name string, s signature) error {
	v := &verification{File: name}
	name, err := localfile.Path(name)
	switch {
	case err != nil:
		return err
	case (s.key == "") == (s.chain == nil):
		return usage("expected either --public-key or --chain, to know whom you trust")
	}
	m, who, err := openSignature(c.ctx, s)
	if err != nil {
		return err
	}
	v.SignedBy = who
	ignored := s.ignored(name) // the list in the signature is the signer's, and silences nothing
	tree, err := c.signedTree(name, m.AllowSymlinks || s.follow, func(path string) bool {
		return modelsig.Ignored(path, ignored) && !m.Covers(path)
	})
	if err != nil {
		return err
	}
	if tree.Single && m.Covers(modelsig.SingleFile) { // a manifest with this name covers no other file
		m.Files[0].Name = tree.Name
	}
	sums, err := c.hashFiles(tree.Files, m.ShardSize, func(f storage.File) hash.Hash {
		if _, signed := m.Find(f.Name); !signed {
			return nil
		}
		h, _ := modelsig.NewHash(m.Hash) // never fails, because Parse has checked the name
		return h
	})
	if err != nil {
		return err
	}
	v.Files = compareSigned(tree, sums, m, s.unsigned)
	missing, err := uncovered(tree.Files, m)
	for _, x := range missing {
		v.Files = append(v.Files, finding{x.file, resultUncovered, "NOT SIGNED, but " + term.Name(x.index) + " names it"})
	}
	return c.printVerification(v, err)
}

// openSignature reads a signature and verifies it. It returns the manifest in it, and a description
// of the signer.
func openSignature(ctx context.Context, s signature) (m *modelsig.Manifest, who string, err error) {
	b, err := readParsed(ctx, s.file, modelsig.MaxSize, parseSignature)
	if errors.Is(err, modelsig.ErrKeyless) {
		return nil, "", fmt.Errorf("%w; the signature alone can be verified with: cosign verify-blob-attestation --bundle %s "+
			"--type https://model_signing/signature/v1.0 --check-claims=false --certificate-identity WHO --certificate-oidc-issuer ISSUER", err, term.FileWord(s.file))
	}
	if err != nil {
		if m, failed := readParsed(ctx, s.file, modelsig.MaxSize, parseManifest); failed == nil && len(m.Files)+len(m.Tensors) > 0 {
			return nil, "", usage("--signature %s: it is a manifest, which has sums without a signature: verify SRC %s", term.Name(s.file), term.FileWord(s.file))
		}
		return nil, "", err
	}
	if s.key != "" {
		key, err := readParsed(ctx, s.key, maxPEM, modelsig.ParsePublicKey)
		if err != nil {
			return nil, "", err
		}
		if m, err = b.VerifyKey(key); err != nil {
			return nil, "", fmt.Errorf("%s: %w", term.Name(s.file), err)
		}
		return m, "the key " + term.Name(s.key), nil
	}
	roots, err := readCertificates(ctx, s.chain)
	if err != nil {
		return nil, "", err
	}
	m, leaf, err := b.VerifyChain(roots, time.Now())
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", term.Name(s.file), err)
	}
	return m, fmt.Sprintf("%s, whose certificate is from %s", term.Name(leaf.Subject.String()), term.Name(leaf.Issuer.String())), nil
}

func parseSignature(text []byte) (*modelsig.Bundle, error) {
	b, err := modelsig.Parse(text)
	if err != nil && !errors.Is(err, modelsig.ErrKeyless) {
		err = fmt.Errorf("not a signature of OpenSSF Model Signing: %w", err)
	}
	return b, err
}

func parseManifest(text []byte) (*manifest.Manifest, error) {
	return manifest.Read(bytes.NewReader(text))
}

// compareSigned returns a finding for each file, sorted by name.
func compareSigned(tree *storage.Tree, sums [][][]byte, m *modelsig.Manifest, unsigned bool) (all []finding) {
	found := make(map[string]finding)
	put := func(name, result, words string) { found[name] = finding{name, result, words} }
	why := func(name string) string {
		if modelsig.Ignored(name, m.IgnorePaths) {
			return "LEFT OUT BY THE SIGNATURE"
		}
		return "NOT SIGNED"
	}
	for _, f := range m.Files {
		put(f.Name, resultMissing, "MISSING")
	}
	for i, file := range tree.Files {
		switch k, signed := m.Find(file.Name); {
		case !signed && harmless(file.Name) && (unsigned || modelsig.Ignored(file.Name, m.IgnorePaths)):
			put(file.Name, resultIgnored, why(file.Name)+", ignored")
		case !signed:
			words := why(file.Name)
			if unsigned || modelsig.Ignored(file.Name, m.IgnorePaths) {
				words += ", and a loader may read it"
			}
			put(file.Name, resultUncovered, words)
		case slices.EqualFunc(sums[i], m.Files[k].Sums, bytes.Equal):
			put(file.Name, resultOK, "OK")
		default:
			put(file.Name, resultDifferent, "DIFFERS")
		}
	}
	for _, name := range tree.Links {
		words := "SYMBOLIC LINK"
		if modelsig.Ignored(name, m.IgnorePaths) {
			words = "LEFT OUT BY THE SIGNATURE, SYMBOLIC LINK"
		}
		put(name, resultLink, words)
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[name])
	}
	return all
}

// harmlessFiles are names and endings of files that people read, and programs that load a model do
// not. All other files can matter, for example as weights, indexes, configurations, vocabularies or
// code.
var harmlessFiles = []string{
	"README", "README.txt", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt",
	".md", ".rst", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".sig", ".sha256",
}

// harmless reports whether an unsigned file may be ignored.
func harmless(name string) bool {
	base := path.Base(name)
	return slices.Contains(harmlessFiles, base) || slices.Contains(harmlessFiles, path.Ext(base))
}
