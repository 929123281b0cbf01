package modelsig

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"strings"
)

// legacyPredicate is the predicate of version 0.2 of the Python package. In its signatures, the
// sums are subjects, and the signed form of the payload is the text with which Python prints its
// bytes. Verifiers may accept such signatures (section 11 of the specification); this package never
// writes them. It accepts each of the two peculiarities only together with the other.
const legacyPredicate = "https://model_signing/Digests/v0.1"

// verifyLegacy checks a signature of version 0.2. It tries two hashes, because that version used
// SHA-256 for certificates of every curve.
func (b *Bundle) verifyLegacy(key *ecdsa.PublicKey, h crypto.Hash) bool {
	encoded := fmt.Appendf(nil, "DSSEV1 %d %s %d %s", len(payloadType), payloadType, len(b.payload), pythonBytes(b.payload))
	return ecdsa.VerifyASN1(key, digest(crypto.SHA256, encoded), b.sig) ||
		h != crypto.SHA256 && ecdsa.VerifyASN1(key, digest(h, encoded), b.sig)
}

// pythonBytes returns the text that Python's repr prints for bytes.
func pythonBytes(data []byte) []byte {
	quote := byte('\'')
	if bytes.IndexByte(data, '\'') >= 0 && bytes.IndexByte(data, '"') < 0 {
		quote = '"'
	}
	out := []byte{'b', quote}
	for _, c := range data {
		switch i := strings.IndexByte("\t\n\r", c); {
		case c == quote, c == '\\':
			out = append(out, '\\', c)
		case i >= 0:
			out = append(out, '\\', "tnr"[i])
		case c < ' ', c > '~':
			out = fmt.Appendf(out, `\x%02x`, c)
		default:
			out = append(out, c)
		}
	}
	return append(out, quote)
}

// parseLegacy parses a payload of version 0.2 whose signature has been verified.
func parseLegacy(payload []byte) (*Manifest, error) {
	s := new(statement)
	if err := decode(payload, s); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	if s.Type != statementType || s.PredicateType != legacyPredicate {
		return nil, fmt.Errorf("predicate type %.80q of a signature of the kind of %q", s.PredicateType, legacyPredicate)
	}
	m := &Manifest{Hash: "sha256"}
	var resources []resource
	for _, subject := range s.Subjects {
		resources = append(resources, resource{m.Hash, subject.Digest.SHA256, subject.Name})
	}
	_, err := m.add(resources)
	return m, err
}
