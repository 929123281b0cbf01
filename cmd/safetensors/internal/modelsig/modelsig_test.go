package modelsig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

func newKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	return must(ecdsa.GenerateKey(curve, rand.Reader))
}

// now is the time of the tests, in the middle of the lives of their certificates.
var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// certify makes a certificate that parent has signed, or itself if there is none.
func certify(t testing.TB, key *ecdsa.PrivateKey, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, edit func(c *x509.Certificate)) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: t.Name()},
		NotBefore: now.AddDate(-1, 0, 0), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	}
	edit(c)
	if parent == nil {
		parent, parentKey = c, key
	}
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey))))
}

// authority makes a certificate one of an authority.
func authority(name string) func(c *x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName = name
		c.IsCA, c.BasicConstraintsValid, c.ExtKeyUsage = true, true, nil
		c.KeyUsage = x509.KeyUsageCertSign
	}
}

func sum(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}

func model() *Manifest {
	return &Manifest{Model: "m", Hash: "sha256", IgnorePaths: []string{".git"}, Files: []File{
		{Name: "a.json", Sums: [][]byte{sum("a")}},
		{Name: "sub-1/x", Sums: [][]byte{sum("b")}},
		{Name: "sub/x", Sums: [][]byte{sum("c")}},
	}}
}

// TestRoundTrip signs with a key of each curve, and verifies.
func TestRoundTrip(t *testing.T) {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		key := newKey(t, curve)
		b := must(Parse(must(Sign(model(), key, nil))))
		require.Equal(t, model(), must(b.VerifyKey(&key.PublicKey)))
		_, _, err := b.VerifyChain(nil, now)
		require.ErrorContains(t, err, "signed with a key, not with a certificate")
		b.PublicKey.Hint = "" // as in bundles of before 1.1, which hold the key, or nothing
		require.ErrorContains(t, errorOf(b.VerifyKey(&newKey(t, curve).PublicKey)), "the signature is not that of the key")
	}
	require.ErrorContains(t, errorOf(Sign(model(), newKey(t, elliptic.P224()), nil)), "P-224: the format has ECDSA with P-256, P-384 and P-521")
	bad := model()
	bad.Files[1].Name = "../x"
	require.ErrorContains(t, errorOf(Sign(bad, newKey(t, elliptic.P256()), nil)), "clean path", "what could not be verified is not signed")
	require.ErrorContains(t, errorOf(Sign(&Manifest{Hash: "sha256"}, newKey(t, elliptic.P256()), nil)), "covers no file")
	long := model()
	long.Files[0].Name = strings.Repeat("a", MaxSize*3/4)
	require.EqualError(t, errorOf(Sign(long, newKey(t, elliptic.P256()), nil)), fmt.Sprintf("the signature of 3 files would be larger than %d bytes", MaxSize))
}

// A signer makes bundles whose signature is right and whose content is not.
type signer struct {
	key  *ecdsa.PrivateKey
	hint string
}

func newSigner(t testing.TB) signer {
	key := newKey(t, elliptic.P256())
	return signer{key, keyHint(&key.PublicKey)}
}

// bundle signs any payload.
func (s signer) bundle(t testing.TB, payload []byte) []byte {
	h := sha256.Sum256(preAuthentication(payload))
	sig := must(ecdsa.SignASN1(rand.Reader, s.key, h[:]))
	text, err := json.Marshal(map[string]any{
		"mediaType":            mediaType,
		"verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": s.hint}},
		"dsseEnvelope":         map[string]any{"payload": payload, "payloadType": payloadType, "signatures": []any{map[string]any{"sig": sig}}},
	})
	require.NoError(t, err)
	return text
}

func (s signer) verify(bundle []byte) (*Manifest, error) {
	b, err := Parse(bundle)
	if err != nil {
		return nil, err
	}
	return b.VerifyKey(&s.key.PublicKey)
}

// edited returns the statement of model after the replacement of texts in it. Its digest
// is made right again.
func edited(t testing.TB, replace ...string) []byte {
	text := string(must(model().statement()))
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, text, replace[i])
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}
	return fixDigest([]byte(text))
}

// fixDigest writes the right digest of the subject, if there is one to be written.
func fixDigest(payload []byte) []byte {
	var have, want string
	fmt.Sscanf(fmt.Sprint(errorOf(parseStatement(payload))), "the digest of the subject is %q, that of the resources %q", &have, &want)
	if len(have) != 64 {
		return payload
	}
	return bytes.ReplaceAll(payload, []byte(have), []byte(want))
}

// TestStatementRules has a statement that breaks each rule of the specification, signed
// by the right key.
func TestStatementRules(t *testing.T) {
	s := newSigner(t)
	m := must(s.verify(s.bundle(t, edited(t))))
	require.Equal(t, model(), m)
	last := `{"algorithm":"sha256","digest":"2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6","name":"sub/x"}`
	for _, c := range []struct {
		rule    string
		replace []string
		want    string
	}{
		{"8.3 the statement is an object", []string{`{"_type"`, `[{"_type"`, `"name":"m"}]}`, `"name":"m"}]}]`}, "expected an object, not array"},
		{"8.3 _type", []string{"Statement/v1", "Statement/v0.1"}, `statement of type "https://in-toto.io/Statement/v0.1"`},
		{"8.3 _type is a string", []string{`"https://in-toto.io/Statement/v1"`, "1"}, "_type: expected a string, not number"},
		{"5.1 another predicate type", []string{predicateType, "https://slsa.dev/provenance/v1"}, `predicate type "https://slsa.dev/provenance/v1"`},
		{"5.1 the legacy predicate needs the legacy signature", []string{predicateType, legacyPredicate}, `predicate type "https://model_signing/Digests/v0.1"`},
		{"8.3 predicate", []string{`"predicate":`, `"other":`}, "no predicate"},
		{"8.3 predicate is an object", []string{`"predicate":{`, `"predicate":null,"other":{`}, "predicate is null"},
		{"6.5 one subject", []string{`"subject":[`, `"subject":[{"name":"x","digest":{}},`}, "2 subjects"},
		{"6.5 a subject", []string{`"subject":[`, `"subject":[],"other":[`}, "0 subjects"},
		{"6.5 name of the subject", []string{`"name":"m"`, `"name":""`}, "the subject has no name"},
		{"6.5.1 digest of the subject", []string{`"digest":{"sha256":"`, `"digest":{"sha256":"0`}, "digest of the subject"},
		{"5.2.1 at least one resource", []string{`"resources":[`, `"resources":[],"other":[`}, "covers no file"},
		{"5.2.1 sorted", []string{`"a.json"`, `"z.json"`}, `not sorted: "sub-1/x" is out of place`},
		{"5.2.1 duplicate", []string{`"sub/x"`, `"sub-1/x"`}, `duplicate resource "sub-1/x"`},
		{"5.2.1 duplicate, escaped", []string{`"sub/x"`, `"sub\u002d1/x"`}, `duplicate resource "sub-1/x"`},
		{"5.2.1 name", []string{`"name":"sub/x"`, `"nam":"x"`}, `resource "" is not the clean path`},
		{"5.2.1 digest", []string{`"digest":"2e`, `"digests":"2e`}, `digest "" is not that of sha256`},
		{"5.2.1 algorithm", []string{`"algorithm":"sha256","digest":"2e`, `"digest":"2e`}, `algorithm "", expected "sha256"`},
		{"5.2.1 length of a digest", []string{`aefc6"`, `aefc"`}, "is not that of sha256"},
		{"6.3.1 lower case", []string{`aefc6"`, `AEFC6"`}, "is not that of sha256"},
		{"5.2.1 hexadecimal", []string{`aefc6"`, `aefcz"`}, "is not that of sha256"},
		{"7 one algorithm", []string{`"algorithm":"sha256","digest":"2e`, `"algorithm":"md5","digest":"2e`}, `algorithm "md5", expected "sha256"`},
		{"6.1.2 absolute", []string{`"a.json"`, `"/etc/passwd"`}, `resource "/etc/passwd" is not the clean path`},
		{"6.1.2 parent", []string{`"a.json"`, `"../a.json"`}, "is not the clean path"},
		{"6.1.2 parent within", []string{`"a.json"`, `"a/../../b"`}, "is not the clean path"},
		{"6.1.2 parent at the end", []string{`"a.json"`, `"a/.."`}, "is not the clean path"},
		{"6.1.2 dot", []string{`"a.json"`, `"./a.json"`}, "is not the clean path"},
		{"6.1.2 dot alone, of several", []string{`"a.json"`, `"."`}, "is not the clean path"},
		{"6.1.2 empty element", []string{`"a.json"`, `"a//b"`}, "is not the clean path"},
		{"6.1.2 trailing slash", []string{`"a.json"`, `"a/"`}, "is not the clean path"},
		{"6.1.2 NUL", []string{`"a.json"`, `"a\u0000"`}, "is not the clean path"},
		{"5.2.2 serialization", []string{`"serialization"`, `"other"`}, "no serialization"},
		{"5.2.2 method", []string{`"method":"files"`, `"method":"blobs"`}, `method "blobs", expected files or shards`},
		{"5.2.2 hash_type", []string{`"hash_type":"sha256"`, `"hash_type":"md5"`}, `hash "md5" is not one of the format`},
		{"7 blake3", []string{`"sha256",`, `"blake3",`}, `hash "blake3" of the format is not supported`},
		{"5.2.2 allow_symlinks", []string{`"allow_symlinks":false,`, ``}, "no allow_symlinks"},
		{"5.2.2 allow_symlinks is a boolean", []string{`"allow_symlinks":false`, `"allow_symlinks":"false"`}, "predicate.serialization.allow_symlinks: expected a boolean, not string"},
		{"5.2.2 shard_size of files", []string{`"method":"files"`, `"method":"files","shard_size":100`}, "shard_size with the method files"},
		{"5.2.2 shard_size of shards", []string{`"method":"files"`, `"method":"shards"`}, "shard_size is 0, expected a positive whole number"},
		{"5.2.2 shard_size is an integer", []string{`"method":"files"`, `"method":"shards","shard_size":1.5`}, "shard_size is 1.5, expected a positive whole number"},
		{"5.2.2 shard_size is a number", []string{`"method":"files"`, `"method":"shards","shard_size":1e400`}, "predicate.serialization.shard_size: expected a number"},
		{"5.2.2 shard_size in bounds", []string{`"method":"files"`, `"method":"shards","shard_size":1e300`}, "shard_size is 1e+300, expected a positive whole number"},
		{"6.3.2 name of a shard", []string{`"method":"files"`, `"method":"shards","shard_size":9`}, "is not PATH:START:END"},
		{"5.2.2 ignore_paths", []string{`[".git"]`, `[1]`}, "predicate.serialization.ignore_paths…: expected a string, not number"},
		{"JSON: duplicate field", []string{`"_type":`, `"_type":"x","_type":`}, `duplicate field "_type"`},
		{"JSON: another case", []string{`"resources":`, `"Resources":`}, `field "Resources", expected "resources"`},
		{"JSON: something after it", []string{last + "]", last + "]} {"}, "is not JSON"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			m, err := s.verify(s.bundle(t, edited(t, c.replace...)))
			for _, part := range strings.Split(c.want, "…") { // where Go 1.27 names an element
				require.ErrorContains(t, err, part)
			}
			require.Nil(t, m)
		})
	}
}

// TestBundleRules has a bundle that breaks each rule.
func TestBundleRules(t *testing.T) {
	s := newSigner(t)
	good := string(s.bundle(t, edited(t)))
	sig := base64.StdEncoding.EncodeToString(must(Parse([]byte(good))).sig)
	key := `"publicKey":{"hint":"` + s.hint + `"}`
	other := newSigner(t)
	for _, c := range []struct {
		rule    string
		replace []string
		want    string
	}{
		{"empty", []string{good, ""}, "unexpected end of JSON input"},
		{"another format", []string{good, "untrusted comment: minisign"}, "is not JSON"},
		{"not UTF-8", []string{`"mediaType"`, "\"\xff\":0,\"mediaType\""}, "is not UTF-8"},
		{"nesting", []string{`"mediaType"`, `"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `,"mediaType"`}, "exceeded max depth"},
		{"media type", []string{"bundle.v0.3", "bundle.v0.9"}, `media type "application/vnd.dev.sigstore.bundle.v0.9+json"`},
		{"no media type", []string{`"mediaType"`, `"mediatype"`}, `field "mediatype", expected "mediaType"`},
		{"media type in another case that package json takes", []string{`"publicKey"`, `"public\u212aey"`}, `expected "publicKey"`},
		{"media type is null", []string{`"mediaType":"`, `"mediaType":null,"x":"`}, "mediaType is null"},
		{"nothing", []string{good, "null"}, `media type ""`},
		{"no method", []string{key, ""}, "neither a key nor certificates"},
		{"two methods", []string{key, key + `,"x509CertificateChain":{"certificates":[]}`}, "several methods"},
		{"a key and a certificate of Fulcio", []string{key, key + `,"certificate":{}`}, "several methods"},
		{"keyless", []string{key, `"certificate":{"rawBytes":"AA=="},"tlogEntries":[{}]`}, ErrKeyless.Error()},
		{"no certificate in the chain", []string{key, `"x509CertificateChain":{"certificates":[]}`}, "0 certificates, expected 1 to 16"},
		{"too many certificates", []string{key, `"x509CertificateChain":{"certificates":[` + strings.Repeat(`{"rawBytes":"AA=="},`, 16) + `{"rawBytes":"AA=="}]}`}, "17 certificates"},
		{"no envelope", []string{"dsseEnvelope", "messageSignature"}, "no dsseEnvelope"},
		{"payload type", []string{payloadType, "application/json"}, `payload type "application/json"`},
		{"no signature", []string{`"signatures":[`, `"signatures":[],"x":[`}, "0 signatures"},
		{"two signatures", []string{`"signatures":[`, `"signatures":[{"sig":"AA=="},`}, "2 signatures"},
		{"payload is no base64", []string{`"payload":"`, `"payload":"!`}, "payload: expected base64"},
		{"payload with a line break", []string{`"payload":"`, `"payload":"\n`}, "payload: expected base64"},
		{"no payload", []string{`"payload":`, `"load":`}, "payload: expected base64"},
		{"sig is no base64", []string{`"sig":"`, `"sig":"!`}, "sig: expected base64"},
		{"sig ends in what is no base64", []string{sig, sig + "!"}, "sig: expected base64"},
		{"sig is null", []string{`"sig":"`, `"sig":null,"x":"`}, "sig is null"},
		{"another key", []string{s.hint, other.hint}, "signed with another key"},
		{"duplicate payload", []string{`"payload":"`, `"payload":"AA==","payload":"`}, `duplicate field "payload"`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			require.Contains(t, good, c.replace[0])
			require.ErrorContains(t, errorOf(s.verify([]byte(strings.ReplaceAll(good, c.replace[0], c.replace[1])))), c.want)
		})
	}
	require.ErrorContains(t, errorOf(s.verify(append(make([]byte, 100<<20), good...))), "a signature of more than 67108864 bytes")
	must(s.verify(append([]byte(good), bytes.Repeat([]byte(" "), MaxSize-len(good))...)))

	// What producers write differently.
	for _, replace := range [][2]string{
		{key, key + `,"tlogEntries":[]`},
		{key, `"publicKey":{"rawBytes":"LS0t","keyDetails":"PKIX_ECDSA_P256_SHA_256"}`},
		{`"sig":`, `"keyid":"","sig":`},
		{`"sig":`, `"keyid":null,"sig":`},
	} {
		_, err := s.verify([]byte(strings.ReplaceAll(good, replace[0], replace[1])))
		require.NoError(t, err, replace[1])
	}
	b := must(Parse([]byte(good)))
	url := strings.ReplaceAll(good, sig, base64.URLEncoding.EncodeToString(b.sig))
	must(s.verify([]byte(url))) // both alphabets of base64
}

// TestTruncated cuts bundles at every byte, and changes every byte of the payload and of
// the signature.
func TestTruncated(t *testing.T) {
	s := newSigner(t)
	good := s.bundle(t, edited(t))
	for n := range good {
		require.Error(t, errorOf(s.verify(good[:n])), "%d bytes", n)
	}
	b := must(Parse(good))
	for _, part := range [][]byte{b.payload, b.sig} {
		for i := range part {
			part[i] ^= 1
			require.ErrorContains(t, errorOf(b.VerifyKey(&s.key.PublicKey)), "one of them was changed", "byte %d", i)
			part[i] ^= 1
		}
	}
	must(b.VerifyKey(&s.key.PublicKey))
}

// TestOrders accepts the order of the specification and that of the Python package.
func TestOrders(t *testing.T) {
	s := newSigner(t)
	swap := []string{`"sub/x"`, `"#"`, `"sub-1/x"`, `"sub/x"`, `"#"`, `"sub-1/x"`}
	m := must(s.verify(s.bundle(t, edited(t, swap...))))
	require.Equal(t, []string{"a.json", "sub-1/x", "sub/x"}, []string{m.Files[0].Name, m.Files[1].Name, m.Files[2].Name})
	for name, want := range map[string]bool{"sub": true, "sub/x": true, "sub-2": false, "su": false} {
		require.Equal(t, want, m.Covers(name), name)
	}
}

// TestShards reads shards, whose names may have colons, and refuses holes.
func TestShards(t *testing.T) {
	s := newSigner(t)
	algorithm := "sha256"
	shards := func(size string, names ...string) (*Manifest, error) {
		var list []string
		for _, name := range names {
			list = append(list, `{"algorithm":"`+algorithm+`","digest":"`+strings.Repeat("0", 64)+`","name":"`+name+`"}`)
		}
		payload := `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"m","digest":{"sha256":"` + strings.Repeat("1", 64) +
			`"}}],"predicateType":"https://model_signing/signature/v1.0","predicate":{"resources":[` + strings.Join(list, ",") +
			`],"serialization":{"method":"shards","hash_type":"sha256","allow_symlinks":true,"shard_size":` + size + `}}}`
		return s.verify(s.bundle(t, fixDigest([]byte(payload))))
	}
	zero := make([]byte, sha256.Size)
	for _, size := range []string{"100", "100.0", "1e2"} { // the Python package writes a float
		require.Equal(t, &Manifest{Model: "m", Hash: "sha256", AllowSymlinks: true, ShardSize: 100, Files: []File{
			{Name: "a:1:2", Sums: [][]byte{zero, zero}}, {Name: "b", Sums: [][]byte{zero}},
		}}, must(shards(size, "a:1:2:0:100", "a:1:2:100:101", "b:0:7")))
	}
	algorithm = "sha256-sharded-9" // as the Python package writes it
	must(shards("9", "a:0:9"))
	algorithm = "sha256-sharded-1"
	must(shards("1", "a:0:1", "a:1:2"))
	algorithm = "sha256-sharded-9"
	require.ErrorContains(t, errorOf(shards("8", "a:0:8")), `algorithm "sha256-sharded-9", expected "sha256"`)
	algorithm = "sha256"
	must(shards("9", "a:0:9", "a:18:27", "a:9:18")) // sorted by name
	must(shards("9", "a:0:9", "a:9:18", "a:18:27")) // sorted by numbers, as the Python package does
	model := must(shards("9", ".:0:9", ".:9:12"))   // of one file
	require.Equal(t, []File{{Name: ".", Sums: [][]byte{zero, zero}}}, model.Files)
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{"a:9:18"}, "the range 9:18 does not follow 0"},
		{[]string{"a:0:9", "a:10:12"}, "the range 10:12 does not follow 9"},
		{[]string{"a:0:8", "a:8:9"}, "does not follow 8 in shards of 9"},
		{[]string{"a:0:10"}, "the range 0:10"},
		{[]string{"a:0:0"}, "the range 0:0"},
		{[]string{"a:0:9", "a:0:9"}, "duplicate resource"},
		{[]string{"a:0:9", "a:00:9"}, "not sorted"},
		{[]string{"a:-1:9"}, "PATH:START:END"},
		{[]string{"a:0:99999999999999999999"}, "PATH:START:END"},
		{[]string{"0:9"}, "PATH:START:END"},
		{[]string{":0:9"}, "clean path"},
		{[]string{"../a:0:9"}, "clean path"},
		{[]string{".:0:9", ".:9:18", "a:0:9"}, "clean path"},
	} {
		require.ErrorContains(t, errorOf(shards("9", c.names...)), c.want)
	}
}

// TestChain verifies by certificates, and refuses each that does not prove enough.
func TestChain(t *testing.T) {
	rootKey, interKey, key := newKey(t, elliptic.P384()), newKey(t, elliptic.P256()), newKey(t, elliptic.P521())
	root := certify(t, rootKey, nil, nil, authority("root"))
	inter := certify(t, interKey, root, rootKey, authority("between"))
	leaf := func(edit func(c *x509.Certificate)) *x509.Certificate { return certify(t, key, inter, interKey, edit) }
	good := leaf(func(*x509.Certificate) {})
	otherRoot := certify(t, newKey(t, elliptic.P256()), nil, nil, authority("root"))
	self := certify(t, key, nil, nil, func(*x509.Certificate) {})
	verify := func(chain []*x509.Certificate, trusted ...*x509.Certificate) error {
		bundle := must(Sign(model(), key, chain))
		b := must(Parse(bundle))
		require.ErrorContains(t, errorOf(b.VerifyKey(&key.PublicKey)), "signed with a certificate, not with a key")
		m, who, err := b.VerifyChain(trusted, now)
		if err == nil {
			require.Equal(t, model(), m)
			require.True(t, who.Equal(chain[0]))
		}
		return err
	}
	pair := []*x509.Certificate{good, inter}
	require.NoError(t, verify(pair, root))
	require.NoError(t, verify([]*x509.Certificate{good, inter, root}, otherRoot, root))
	require.NoError(t, verify([]*x509.Certificate{good}, inter, root), "the caller may bring what is missing")
	require.NoError(t, verify([]*x509.Certificate{self}, self), "the caller trusts this very certificate")
	for _, c := range []struct {
		rule    string
		chain   []*x509.Certificate
		trusted []*x509.Certificate
		want    string
	}{
		{"another root", pair, []*x509.Certificate{otherRoot}, "unknown authority"},
		{"the root of the bundle counts for nothing", []*x509.Certificate{good, inter, root}, []*x509.Certificate{otherRoot}, "unknown authority"},
		{"a self-signed leaf", []*x509.Certificate{self}, []*x509.Certificate{root}, "unknown authority"},
		{"no link between", []*x509.Certificate{good}, []*x509.Certificate{root}, "unknown authority"},
		{"no root is trusted", pair, []*x509.Certificate{inter}, "none of the trusted certificates is a root"},
		{"nothing is trusted", pair, nil, "none of the trusted certificates is a root"},
		{"expired", []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) }), inter}, []*x509.Certificate{root}, "has expired"},
		{"not yet valid", []*x509.Certificate{leaf(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }), inter}, []*x509.Certificate{root}, "not yet valid"},
		{"expired between", []*x509.Certificate{good, certify(t, interKey, root, rootKey, func(c *x509.Certificate) {
			authority("between")(c)
			c.NotAfter = now.Add(-time.Hour)
		})}, []*x509.Certificate{root}, "not trusted"},
		{"signed by a leaf", []*x509.Certificate{certify(t, key, good, key, func(*x509.Certificate) {}), good, inter}, []*x509.Certificate{root}, "not trusted"},
		{"for TLS servers alone", []*x509.Certificate{leaf(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), inter},
			[]*x509.Certificate{root}, "incompatible key usage"},
		{"not for signing", []*x509.Certificate{leaf(func(c *x509.Certificate) { c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageKeyAgreement, nil }), inter},
			[]*x509.Certificate{root}, "not one for signing"},
	} {
		t.Run(c.rule, func(t *testing.T) { require.ErrorContains(t, verify(c.chain, c.trusted...), c.want) })
	}
	require.NoError(t, verify([]*x509.Certificate{leaf(func(c *x509.Certificate) { c.KeyUsage = 0 }), inter}, root), "the purpose codeSigning is enough")
	require.NoError(t, verify([]*x509.Certificate{leaf(func(c *x509.Certificate) { c.ExtKeyUsage = nil }), inter}, root), "the usage digitalSignature is enough")

	// The purposes that the certificate between allows hold for the leaf.
	for purpose, want := range map[x509.ExtKeyUsage]string{x509.ExtKeyUsageCodeSigning: "", x509.ExtKeyUsageServerAuth: "incompatible key usage"} {
		between := certify(t, interKey, root, rootKey, func(c *x509.Certificate) {
			authority("between")(c)
			c.ExtKeyUsage = []x509.ExtKeyUsage{purpose}
		})
		err := verify([]*x509.Certificate{certify(t, key, between, interKey, func(*x509.Certificate) {}), between}, root)
		require.Equal(t, want == "", err == nil, "%v", err)
		if err != nil {
			require.ErrorContains(t, err, want)
		}
	}

	// A certificate of another key, and changed bytes of certificates.
	bundle := must(Sign(model(), newKey(t, elliptic.P521()), pair))
	b := must(Parse(bundle))
	_, _, err := b.VerifyChain([]*x509.Certificate{root}, now)
	require.ErrorContains(t, err, "the signature is not that of the key")
	for i := 0; i < len(good.Raw); i += 7 {
		der := bytes.Clone(good.Raw)
		der[i] ^= 1
		b.Chain.Certificates[0].RawBytes = base64.StdEncoding.EncodeToString(der)
		_, _, err := b.VerifyChain([]*x509.Certificate{root}, now)
		require.Error(t, err, "byte %d", i)
	}
	b.Chain.Certificates[0].RawBytes = base64.StdEncoding.EncodeToString(make([]byte, maxCertificate+1))
	_, _, err = b.VerifyChain([]*x509.Certificate{root}, now)
	require.ErrorContains(t, err, "more than 65536 bytes")
}

// TestKeys reads keys and certificates, and says what is there instead.
func TestKeys(t *testing.T) {
	encode := func(typ string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}) }
	key := newKey(t, elliptic.P256())
	private := encode("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
	for _, text := range [][]byte{private, encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key))), append(encode("EC PARAMETERS", []byte{5, 0}), private...)} {
		require.True(t, must(ParsePrivateKey(text)).Equal(key))
	}
	public := encode("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(&key.PublicKey)))
	require.True(t, must(ParsePublicKey(public)).Equal(&key.PublicKey))

	require.ErrorContains(t, errorOf(ParsePublicKey(private)), `no PEM block "PUBLIC KEY" in it, but "EC PRIVATE KEY"`)
	require.ErrorContains(t, errorOf(ParsePrivateKey(public)), `no PEM block "PRIVATE KEY" in it, but "PUBLIC KEY"`)
	require.ErrorContains(t, errorOf(ParseCertificates(public)), `no PEM block "CERTIFICATE"`)
	require.ErrorContains(t, errorOf(ParsePrivateKey(encode("ENCRYPTED PRIVATE KEY", []byte{1}))), "the key is encrypted")
	require.ErrorContains(t, errorOf(ParsePrivateKey(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"DEK-Info": "x"}}))), "the key is encrypted")
	short := newKey(t, elliptic.P224())
	require.ErrorContains(t, errorOf(ParsePublicKey(encode("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(&short.PublicKey))))), "the curve P-224")
	require.ErrorContains(t, errorOf(ParsePrivateKey(encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(short))))), "the curve P-224")
	require.ErrorContains(t, errorOf(new(Bundle).verify(&ecdsa.PublicKey{Curve: struct{ elliptic.Curve }{elliptic.P256()}})), "a key of the curve P-256: the format")
	require.ErrorContains(t, errorOf(ParsePublicKey(encode("PUBLIC KEY", ed25519Key))), "an Ed25519 key: the format has ECDSA")
	for _, unknown := range []error{
		errorOf(ParsePublicKey(encode("PUBLIC KEY", withOtherCurve(must(x509.MarshalPKIXPublicKey(&key.PublicKey)))))),
		errorOf(ParsePrivateKey(encode("PRIVATE KEY", withOtherCurve(must(x509.MarshalPKCS8PrivateKey(key)))))),
		errorOf(ParsePrivateKey(encode("EC PRIVATE KEY", withOtherCurve(must(x509.MarshalECPrivateKey(key)))))),
		errorOf(ParseCertificates(encode("CERTIFICATE", withOtherCurve(certify(t, key, nil, nil, func(*x509.Certificate) {}).Raw)))),
	} {
		require.ErrorContains(t, unknown, ": the format has ECDSA with P-256, P-384 and P-521")
	}
	for _, parse := range []func([]byte) error{
		func(b []byte) error { _, err := ParsePublicKey(b); return err },
		func(b []byte) error { _, err := ParsePrivateKey(b); return err },
		func(b []byte) error { _, err := ParseCertificates(b); return err },
	} {
		for _, text := range []string{"", "nonsense", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n", "-----BEGIN PUBLIC KEY-----\nAA==\n-----END PUBLIC KEY-----\n", "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"} {
			require.Error(t, parse([]byte(text)))
		}
	}
}

// withOtherCurve returns DER in which another curve, which package x509 does not have, takes the place of P-256.
func withOtherCurve(der []byte) []byte {
	p256 := []byte{0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07}
	return bytes.Replace(der, p256, append(p256[:9:9], 0x09), 1)
}

// ed25519Key is a public key of the kind that the format does not have.
var ed25519Key = append([]byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}, make([]byte, 32)...)

// TestIgnored: an ignored path stands for a file or a directory of the model and nothing outside of
// it.
func TestIgnored(t *testing.T) {
	paths := []string{".git", "cache/x", "", ".", "/", "../up", "/abs"}
	for name, want := range map[string]bool{
		".git": true, ".git/config": true, ".gitmodules": false, "sub/.git": false, "cache": false, "cache/x": true,
		"cache/x/y": true, "cache/xy": false, "model.safetensors": false, "up": false, "abs": false,
	} {
		require.Equal(t, want, Ignored(name, paths), name)
	}
}

// FuzzParse parses bundles and statements: no panic, and what a signature covers obeys
// the rules.
func FuzzParse(f *testing.F) {
	s := newSigner(f)
	payload := edited(f)
	f.Add(s.bundle(f, payload), payload)
	f.Add([]byte(`{"verificationMaterial":{"x509CertificateChain":{"certificates":[{"rawBytes":"AA=="}]}}}`),
		[]byte(`{"predicate":{"serialization":{"shard_size":100.0,"method":"shards"},"resources":[{"name":"a:0:9"}]}}`))
	f.Fuzz(func(t *testing.T, bundle, payload []byte) {
		if b, err := Parse(bundle); err == nil && b.Chain != nil {
			_, _, err := b.VerifyChain(nil, now)
			require.Error(t, err)
		}
		for _, parse := range []func([]byte) (*Manifest, error){parseStatement, parseLegacy} {
			m, err := parse(fixDigest(payload))
			if err != nil {
				continue
			}
			require.NotEmpty(t, m.Files)
			for i, file := range m.Files {
				require.NotEmpty(t, file.Sums)
				require.False(t, strings.HasPrefix(file.Name, "/") || strings.Contains("/"+file.Name+"/", "/../"))
				require.True(t, i == 0 || m.Files[i-1].Name < file.Name)
			}
		}
	})
}

// TestHistorical verifies what older versions of the Python package have signed.
func TestHistorical(t *testing.T) {
	read := func(name string) []byte {
		return must(os.ReadFile(filepath.Join("testdata", name)))
	}
	key := must(ParsePublicKey(read("key.pub")))
	roots := must(ParseCertificates(read("root.pem")))
	names := must(filepath.Glob("testdata/*.sig"))
	require.Len(t, names, 5)
	for _, name := range names {
		b, err := Parse(read(filepath.Base(name)))
		require.NoError(t, err, name)
		verify := func() (*Manifest, error) {
			if b.Chain == nil {
				return b.VerifyKey(key)
			}
			m, _, err := b.VerifyChain(roots, now)
			return m, err
		}
		m, err := verify()
		require.NoError(t, err, name)
		require.Equal(t, []File{
			{Name: "config.json", Sums: [][]byte{sum("{}\n")}},
			{Name: "sub-1/x", Sums: [][]byte{sum("two\n")}},
			{Name: "sub/x", Sums: [][]byte{sum("one\n")}},
		}, m.Files, name)
		b.payload[20] ^= 1
		require.ErrorContains(t, errorOf(verify()), "one of them was changed", name)
	}

	// The legacy encoding goes with the legacy predicate only.
	private := newKey(t, elliptic.P256())
	verify := func(payload []byte) (*Manifest, error) {
		encoded := fmt.Appendf(nil, "DSSEV1 %d %s %d %s", len(payloadType), payloadType, len(payload), pythonBytes(payload))
		h := sha256.Sum256(encoded)
		sig := must(ecdsa.SignASN1(rand.Reader, private, h[:]))
		return (&Bundle{payload: payload, sig: sig}).verify(&private.PublicKey)
	}
	require.ErrorContains(t, errorOf(verify(edited(t))), "predicate type")
	statement := fmt.Sprintf(`{"_type":%q,"predicateType":%q,"subject":[{"name":"x","digest":{"sha256":"%x"}}]`, statementType, legacyPredicate, sum("x"))
	require.Equal(t, []File{{Name: "x", Sums: [][]byte{sum("x")}}}, must(verify([]byte(statement+"}"))).Files)
	require.ErrorContains(t, errorOf(verify([]byte(statement+`,"subject":[]}`))), `statement: duplicate field "subject"`)
	for data, want := range map[string]string{"a'": `b"a'"`, `a"'`: `b'a"\''`, " ~\\\t\r\n\x00\x1f\x7f\xff": `b' ~\\\t\r\n\x00\x1f\x7f\xff'`} {
		require.Equal(t, want, string(pythonBytes([]byte(data))))
	}
}
