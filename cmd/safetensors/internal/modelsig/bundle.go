package modelsig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	mediaType   = "application/vnd.dev.sigstore.bundle.v0.3+json"
	payloadType = "application/vnd.in-toto+json"
)

// ErrKeyless is the error for a signature of Sigstore's keyless method.
var ErrKeyless = errors.New("it is a keyless signature (Sigstore: Fulcio, Rekor), which is not supported")

// maxCertificates and maxCertificate bound the work of a chain that anybody may have
// put into a bundle.
const (
	maxCertificates = 16
	maxCertificate  = 64 << 10
)

// A Bundle is a signature that is parsed, but not verified: it says nothing yet.
type Bundle struct {
	hint    string // of the key; "" if there is none
	key     bool   // signed with a key
	chain   []string
	payload []byte
	sig     []byte
}

// Parse parses a bundle. A keyless one is ErrKeyless.
func Parse(data []byte) (*Bundle, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("a signature of more than %d bytes", MaxSize)
	}
	var media, typ, payload string
	var signatures []string
	var envelope, chained, keyless bool
	b := new(Bundle)
	text := func(dst *[]string) field {
		return func(d decoder) error {
			var s string
			err := value(&s)(d)
			*dst = append(*dst, s)
			return err
		}
	}
	present := func(found *bool, read field) field {
		return func(d decoder) error { *found = true; return read(d) }
	}
	err := decode(data, map[string]field{
		"mediaType": value(&media),
		"verificationMaterial": object(map[string]field{
			"publicKey": present(&b.key, object(map[string]field{"hint": value(&b.hint)})),
			"x509CertificateChain": present(&chained, object(map[string]field{
				"certificates": list(object(map[string]field{"rawBytes": text(&b.chain)})),
			})),
			"certificate": present(&keyless, decoder.skip),
		}),
		"dsseEnvelope": present(&envelope, object(map[string]field{
			"payload":     value(&payload),
			"payloadType": value(&typ),
			"signatures":  list(object(map[string]field{"sig": text(&signatures)})),
		})),
	})
	switch {
	case err != nil:
		return nil, err
	case media != mediaType:
		return nil, fmt.Errorf("media type %q, expected %q", media, mediaType)
	case keyless && !b.key && !chained:
		return nil, ErrKeyless
	case !b.key && !chained:
		return nil, errors.New("neither a key nor certificates in verificationMaterial")
	case b.key && chained || keyless:
		return nil, errors.New("several methods in verificationMaterial, expected one")
	case chained && (len(b.chain) == 0 || len(b.chain) > maxCertificates):
		return nil, fmt.Errorf("%d certificates, expected 1 to %d", len(b.chain), maxCertificates)
	case !envelope:
		return nil, errors.New("no dsseEnvelope")
	case typ != payloadType:
		return nil, fmt.Errorf("payload type %q, expected %q", typ, payloadType)
	case len(signatures) != 1:
		return nil, fmt.Errorf("%d signatures, expected 1", len(signatures))
	}
	if b.payload, err = decodeBase64(payload); err != nil || len(b.payload) == 0 {
		return nil, errors.New("payload: expected base64")
	}
	if b.sig, err = decodeBase64(signatures[0]); err != nil || len(b.sig) == 0 {
		return nil, errors.New("sig: expected base64")
	}
	return b, nil
}

// decodeBase64 accepts both alphabets, as DSSE asks for.
func decodeBase64(s string) ([]byte, error) {
	return base64.StdEncoding.Strict().DecodeString(strings.NewReplacer("-", "+", "_", "/", "\n", "*", "\r", "*").Replace(s))
}

// preAuthentication is the encoding that DSSE signs.
func preAuthentication(payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

// VerifyKey checks that the key has signed the bundle, and returns what it says.
func (b *Bundle) VerifyKey(key *ecdsa.PublicKey) (*Manifest, error) {
	if !b.key {
		return nil, errors.New("signed with a certificate, not with a key: verify it with the certificate of its root")
	}
	hint, err := keyHint(key)
	if err != nil {
		return nil, err
	}
	if b.hint != "" && b.hint != hint {
		return nil, fmt.Errorf("signed with another key: its hint is %.80q, that of the public key %q", b.hint, hint)
	}
	return b.verify(key)
}

// VerifyChain checks that a certificate has signed the bundle which one of the roots
// vouches for, now, for signing. The certificates in the bundle may only fill the gap
// to a root. It returns what the bundle says and who says it.
func (b *Bundle) VerifyChain(trusted []*x509.Certificate, now time.Time) (*Manifest, *x509.Certificate, error) {
	if b.key {
		return nil, nil, errors.New("signed with a key, not with a certificate: verify it with the public key")
	}
	var chain []*x509.Certificate
	for i, text := range b.chain {
		der, err := decodeBase64(text)
		if err == nil && len(der) > maxCertificate {
			err = fmt.Errorf("more than %d bytes", maxCertificate)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("certificate %d: %w", i, err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, nil, fmt.Errorf("certificate %d: %w", i, err)
		}
		chain = append(chain, c)
	}
	key, err := verifyChain(chain, trusted, now)
	if err != nil {
		return nil, nil, err
	}
	m, err := b.verify(key)
	return m, chain[0], err
}

// verify checks the signature first. Nothing in the payload counts before.
func (b *Bundle) verify(key *ecdsa.PublicKey) (*Manifest, error) {
	h, err := hashOf(key)
	if err != nil {
		return nil, err
	}
	switch {
	case ecdsa.VerifyASN1(key, digest(h, preAuthentication(b.payload)), b.sig):
		return parseStatement(b.payload)
	case b.verifyLegacy(key, h):
		return parseLegacy(b.payload)
	}
	return nil, errors.New("the signature is not that of the key over this payload: one of them was changed")
}

func digest(h crypto.Hash, data []byte) []byte {
	sum := h.New()
	sum.Write(data)
	return sum.Sum(nil)
}

// Sign signs what a manifest says and returns the bundle. chain is that of the
// certificate of the key, the leaf first; without one, the bundle names the key.
func Sign(m *Manifest, key *ecdsa.PrivateKey, chain []*x509.Certificate) ([]byte, error) {
	payload, err := m.statement()
	if err != nil {
		return nil, err
	}
	h, err := hashOf(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	sig, err := key.Sign(rand.Reader, digest(h, preAuthentication(payload)), h)
	if err != nil {
		return nil, err
	}
	material := map[string]any{"tlogEntries": []any{}}
	if chain == nil {
		hint, err := keyHint(&key.PublicKey)
		if err != nil {
			return nil, err
		}
		material["publicKey"] = map[string]string{"hint": hint}
	} else {
		var certificates []any
		for _, c := range chain {
			certificates = append(certificates, map[string][]byte{"rawBytes": c.Raw})
		}
		material["x509CertificateChain"] = map[string]any{"certificates": certificates}
	}
	bundle, err := json.Marshal(map[string]any{
		"mediaType":            mediaType,
		"verificationMaterial": material,
		"dsseEnvelope": map[string]any{
			"payload":     payload,
			"payloadType": payloadType,
			"signatures":  []any{map[string]any{"sig": sig, "keyid": ""}},
		},
	})
	if len(bundle) > MaxSize {
		return nil, fmt.Errorf("the signature of %d files would be larger than %d bytes", len(m.Files), MaxSize)
	}
	return bundle, err
}
