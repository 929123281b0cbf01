package modelsig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // SHA-384 for P-384, and SHA-512 for P-521
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// supported is the end of errors about keys that the format does not have.
const supported = "the format has ECDSA with P-256, P-384 and P-521"

// unparsed returns an error of parsing a key or a certificate. If the key is of a curve or of an algorithm that package
// x509 does not have, such as secp256k1, the text names those of the format.
func unparsed(err error) error {
	if text := err.Error(); strings.Contains(text, "elliptic curve") || strings.Contains(text, "unknown") && strings.Contains(text, "algorithm") { // x509 has no types for these errors
		return fmt.Errorf("%w: %s", err, supported)
	}
	return err
}

// hashOf returns the hash that Sigstore's registry of algorithms assigns to the curve of a key.
func hashOf(key *ecdsa.PublicKey) (crypto.Hash, error) {
	switch key.Curve {
	case elliptic.P256():
		return crypto.SHA256, nil
	case elliptic.P384():
		return crypto.SHA384, nil
	case elliptic.P521():
		return crypto.SHA512, nil
	}
	return 0, fmt.Errorf("a key of the curve %s: %s", key.Params().Name, supported)
}

// ecKey returns key as a public key on an elliptic curve. Any other key is an error, since the
// format does not support it.
func ecKey(key any) (*ecdsa.PublicKey, error) {
	public, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s key: %s", kindOf(key), supported)
	}
	_, err := hashOf(public)
	return public, err
}

// kindOf returns the kind of a public or private key, with an article.
func kindOf(key any) string {
	switch key.(type) {
	case *rsa.PublicKey, *rsa.PrivateKey:
		return "an RSA"
	case ed25519.PublicKey, ed25519.PrivateKey:
		return "an Ed25519"
	}
	return fmt.Sprintf("a %T", key)
}

// keyHint identifies a key as the Python package does, by the SHA-256 sum of its PEM text.
func keyHint(key *ecdsa.PublicKey) string {
	der, _ := x509.MarshalPKIXPublicKey(key) // never fails for the curves of hashOf
	sum := sha256.Sum256(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return hex.EncodeToString(sum[:])
}

// blocks returns the PEM blocks with one of these types. If there are none, the error names the
// types that were found.
func blocks(text []byte, types ...string) (found []*pem.Block, err error) {
	others := ""
	for b, rest := pem.Decode(text); b != nil; b, rest = pem.Decode(rest) {
		if slices.Contains(types, b.Type) {
			found = append(found, b)
		} else {
			others += fmt.Sprintf(", but %.40q", b.Type)
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no PEM block %q in it%s", types[0], others)
	}
	return found, nil
}

// ParsePublicKey reads a public key in PEM.
func ParsePublicKey(text []byte) (*ecdsa.PublicKey, error) {
	found, err := blocks(text, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(found[0].Bytes)
	if err != nil {
		return nil, unparsed(err)
	}
	return ecKey(key)
}

// ErrEncrypted is the error of ParsePrivateKey for a key that a passphrase protects.
var ErrEncrypted = errors.New("the key is encrypted")

// ParsePrivateKey reads a private key in PEM.
func ParsePrivateKey(text []byte) (*ecdsa.PrivateKey, error) {
	found, err := blocks(text, "PRIVATE KEY", "EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	b := found[0]
	if b.Type == "ENCRYPTED PRIVATE KEY" || b.Headers["DEK-Info"] != "" {
		return nil, ErrEncrypted
	}
	var key any
	if b.Type == "EC PRIVATE KEY" {
		key, err = x509.ParseECPrivateKey(b.Bytes)
	} else {
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	}
	if err != nil {
		return nil, unparsed(err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if ok {
		key = &private.PublicKey
	}
	_, err = ecKey(key)
	return private, err
}

// ParseCertificates reads certificates in PEM.
func ParseCertificates(text []byte) (certificates []*x509.Certificate, err error) {
	found, err := blocks(text, "CERTIFICATE")
	for _, b := range found {
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, unparsed(err)
		}
		certificates = append(certificates, c)
	}
	return certificates, err
}

// CheckLeaf checks that a certificate is meant for signing, and returns its key. verifyChain checks
// the purposes of the whole chain.
func CheckLeaf(leaf *x509.Certificate) (*ecdsa.PublicKey, error) {
	if leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) {
		return nil, fmt.Errorf("the certificate of %q is not one for signing: it has neither the key usage digitalSignature nor the purpose codeSigning", leaf.Subject)
	}
	return ecKey(leaf.PublicKey)
}

// verifyChain returns the key of the first certificate, if the chain is trusted. As with OpenSSL, a
// chain must end with a trusted certificate that is signed by itself.
func verifyChain(chain, trusted []*x509.Certificate, now time.Time) (*ecdsa.PublicKey, error) {
	leaf, roots, between := chain[0], x509.NewCertPool(), x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, c := range trusted {
		if selfSigned(c) {
			roots.AddCert(c)
		} else {
			between.AddCert(c)
		}
	}
	if roots.Equal(x509.NewCertPool()) {
		return nil, errors.New("none of the trusted certificates is a root, signed by itself")
	}
	key, err := CheckLeaf(leaf)
	if err != nil {
		return nil, err
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, // the default would be the purpose of a TLS server
	})
	if err != nil {
		return nil, fmt.Errorf("the certificate of %q is not trusted: %w", leaf.Subject, err)
	}
	return key, nil
}

// selfSigned reports whether a certificate is signed by itself. It need not be the certificate of
// an authority, because a leaf can be trusted directly.
func selfSigned(c *x509.Certificate) bool {
	return string(c.RawIssuer) == string(c.RawSubject) &&
		c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}
