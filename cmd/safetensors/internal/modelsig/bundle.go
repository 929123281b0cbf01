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

// maxCertificates and maxCertificate limit the work of verifying a chain, which is untrusted.
const (
	maxCertificates = 16
	maxCertificate  = 64 << 10
)

// A Bundle is a signature that has been parsed but not verified, so that its content proves nothing
// yet.
type Bundle struct {
	material
	payload []byte
	sig     []byte
}

// A material identifies the key of a bundle, in one of three ways.
type material struct {
	PublicKey *struct {
		Hint string `json:"hint"` // identifies the key; may be ""
	} `json:"publicKey"`
	Chain *struct {
		Certificates []struct {
			RawBytes string `json:"rawBytes"`
		} `json:"certificates"`
	} `json:"x509CertificateChain"`
	Certificate *struct{} `json:"certificate"` // certificate of a keyless signature
}

type bundleText struct {
	MediaType string   `json:"mediaType"`
	Material  material `json:"verificationMaterial"`
	Envelope  *struct {
		Payload     string `json:"payload"`
		PayloadType string `json:"payloadType"`
		Signatures  []struct {
			Sig string `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// Parse parses a bundle. For a keyless signature, the error is ErrKeyless.
func Parse(data []byte) (*Bundle, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("a signature of more than %d bytes", MaxSize)
	}
	var text bundleText
	err := decode(data, &text)
	key, chain, keyless := text.Material.PublicKey, text.Material.Chain, text.Material.Certificate != nil
	switch {
	case err != nil:
		return nil, err
	case text.MediaType != mediaType:
		return nil, fmt.Errorf("media type %q, expected %q", text.MediaType, mediaType)
	case keyless && key == nil && chain == nil:
		return nil, ErrKeyless
	case key == nil && chain == nil:
		return nil, errors.New("neither a key nor certificates in verificationMaterial")
	case key != nil && chain != nil || keyless:
		return nil, errors.New("several methods in verificationMaterial, expected one")
	case chain != nil && (len(chain.Certificates) == 0 || len(chain.Certificates) > maxCertificates):
		return nil, fmt.Errorf("%d certificates, expected 1 to %d", len(chain.Certificates), maxCertificates)
	case text.Envelope == nil:
		return nil, errors.New("no dsseEnvelope")
	case text.Envelope.PayloadType != payloadType:
		return nil, fmt.Errorf("payload type %q, expected %q", text.Envelope.PayloadType, payloadType)
	case len(text.Envelope.Signatures) != 1:
		return nil, fmt.Errorf("%d signatures, expected 1", len(text.Envelope.Signatures))
	}
	b := &Bundle{material: text.Material}
	if b.payload, err = decodeBase64(text.Envelope.Payload); err != nil || len(b.payload) == 0 {
		return nil, errors.New("payload: expected base64")
	}
	if b.sig, err = decodeBase64(text.Envelope.Signatures[0].Sig); err != nil || len(b.sig) == 0 {
		return nil, errors.New("sig: expected base64")
	}
	return b, nil
}

// decodeBase64 accepts the standard and the URL alphabet, as DSSE requires.
func decodeBase64(s string) ([]byte, error) {
	return base64.StdEncoding.Strict().DecodeString(strings.NewReplacer("-", "+", "_", "/", "\n", "*", "\r", "*").Replace(s))
}

// preAuthentication returns the bytes that DSSE signs for a payload.
func preAuthentication(payload []byte) []byte {
	return append(fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload)), payload...)
}

// VerifyKey checks that the key has signed the bundle, and returns the manifest in it.
func (b *Bundle) VerifyKey(key *ecdsa.PublicKey) (*Manifest, error) {
	if b.PublicKey == nil {
		return nil, errors.New("signed with a certificate, not with a key: verify it with the certificate of its root (--chain)")
	}
	if hint := keyHint(key); b.PublicKey.Hint != "" && b.PublicKey.Hint != hint {
		return nil, fmt.Errorf("signed with another key: its hint is %.80q, that of the public key %q", b.PublicKey.Hint, hint)
	}
	return b.verify(key)
}

// VerifyChain checks that a certificate has signed the bundle. The certificate must be valid at the
// time now, be meant for signing, and lead to one of the trusted roots. Other certificates in the
// bundle may only fill the gap between it and a root. VerifyChain returns the manifest in the
// bundle, and the certificate.
func (b *Bundle) VerifyChain(trusted []*x509.Certificate, now time.Time) (*Manifest, *x509.Certificate, error) {
	if b.Chain == nil {
		return nil, nil, errors.New("signed with a key, not with a certificate: verify it with the public key")
	}
	var chain []*x509.Certificate
	for i, text := range b.Chain.Certificates {
		var c *x509.Certificate
		der, err := decodeBase64(text.RawBytes)
		if err == nil && len(der) > maxCertificate {
			err = fmt.Errorf("more than %d bytes", maxCertificate)
		}
		if err == nil {
			if c, err = x509.ParseCertificate(der); err != nil {
				err = unparsed(err)
			}
		}
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

// verify checks the signature, and then parses the payload.
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

// Sign signs a manifest and returns the bundle. chain is the certificate chain of the key, with the
// leaf first. If chain is nil, the bundle contains a hint that identifies the key.
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
		material["publicKey"] = map[string]string{"hint": keyHint(&key.PublicKey)}
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
