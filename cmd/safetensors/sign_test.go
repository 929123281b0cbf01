package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/modelsig"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/stretchr/testify/require"
)

// writePEM writes a PEM file.
func writePEM(t *testing.T, name, typ string, der []byte, err error) {
	t.Helper()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), 0o600))
}

// writeKeys writes a key, stem.pem and stem.pub, with a certificate, stem.crt, that a
// root vouches for: stem.root.
func writeKeys(t *testing.T, stem string, curve elliptic.Curve) {
	t.Helper()
	key := must(ecdsa.GenerateKey(curve, rand.Reader))
	rootKey := must(ecdsa.GenerateKey(curve, rand.Reader))
	private, err := x509.MarshalPKCS8PrivateKey(key)
	writePEM(t, stem+".pem", "PRIVATE KEY", private, err)
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	writePEM(t, stem+".pub", "PUBLIC KEY", public, err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &rootKey.PublicKey, rootKey)
	writePEM(t, stem+".root", "CERTIFICATE", der, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "\x1b[31mleaf"}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: root.NotBefore, NotAfter: root.NotAfter,
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, rootKey)
	writePEM(t, stem+".crt", "CERTIFICATE", der, err)
}

// write writes a file and the folders that it is in.
func write(t *testing.T, name, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
	require.NoError(t, os.WriteFile(name, []byte(content), 0o666))
}

// writeModel writes into a folder a model with the files that are and are not signed, and
// its keys.
func writeModel(t *testing.T, dir string) {
	t.Helper()
	model := filepath.Join(dir, "model")
	writeShards(t, model)
	for name, content := range map[string]string{
		"config.json": "{}", "sub/x": "x", "sub-1/x": "y", "sub/.git": "signed, not at the top",
		".git/config": "not signed", ".gitattributes": "not signed", "empty": "", oddName(t): "quoted",
	} {
		write(t, filepath.Join(model, name), content)
	}
	writeKeys(t, filepath.Join(dir, "key"), elliptic.P256())
}

// oddName returns a name that is quoted, or, where files cannot have it, one that is not.
func oddName(t *testing.T) string {
	const name = "größe 重み\x1b"
	if os.WriteFile(filepath.Join(t.TempDir(), name), nil, 0o666) != nil {
		return strings.TrimSuffix(name, "\x1b")
	}
	return name
}

// signedModel returns what verify says of each file of the model.
func signedModel(t *testing.T) string {
	return strings.Join([]string{
		"config.json", "empty", term.Name(oddName(t)), "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
		"model-00003-of-00003.safetensors", "model.safetensors.index.json", "sub-1/x", "sub/.git", "sub/x", "",
	}, ": OK\n")
}

// TestSignS3 signs and verifies in a bucket.
func TestSignS3(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		writeShards(t, "model")
		writeKeys(t, "key", elliptic.P256())
		put := func(key, content string) {
			must(s.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("models"), Key: aws.String(key), Body: strings.NewReader(content)}))
		}
		succeeds(t, "cp", "model", "s3://models/a/llama", "--max-shard-size", "32B")
		put("a/llama/sub/config.json", "{}")
		put("a/llama/.git/config", "")
		put("a/llama2/other", "")
		succeeds(t, "sign", "s3://models/a/llama", "--key", "key.pem", "--out", "s3.sig")
		verify := []string{"verify", "s3://models/a/llama", "--signature", "s3.sig", "--public-key", "key.pub"}
		require.Equal(t, "signed by the key key.pub\nmodel-00001-of-00003.safetensors: OK\nmodel-00002-of-00003.safetensors: OK\n"+
			"model-00003-of-00003.safetensors: OK\nmodel.safetensors.index.json: OK\nsub/config.json: OK\n", succeeds(t, verify...))
		put("a/llama/model-00002-of-00003.safetensors", "other")
		put("a/llama/sub/y", "")
		r := runs(t, verify...)
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stdout, "model-00002-of-00003.safetensors: DIFFERS\n")
		require.Contains(t, r.stdout, "sub/y: NOT SIGNED\n")
	})
}

// TestSignedByBLAKE2b: verify reads signatures with sums of BLAKE2b, which other programs write.
func TestSignedByBLAKE2b(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "model/x", "abc")
	writeKeys(t, "key", elliptic.P256())
	sum := must(hex.DecodeString("ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1" + // the example of RFC 7693
		"7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"))
	key := must(modelsig.ParsePrivateKey(must(os.ReadFile("key.pem"))))
	m := &modelsig.Manifest{Model: "model", Hash: "blake2b", IgnorePaths: modelsig.DefaultIgnorePaths, Files: []modelsig.File{{Name: "x", Sums: [][]byte{sum}}}}
	write(t, "model.sig", string(must(modelsig.Sign(m, key, nil))))
	verify := []string{"verify", "model", "--signature", "model.sig", "--public-key", "key.pub"}
	require.Contains(t, succeeds(t, verify...), "x: OK\n")
	write(t, "model/x", "abd")
	r := runs(t, verify...)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "x: DIFFERS\n")
}

// TestVerifySingleFile: the Python package names the only file of a model ".".
func TestVerifySingleFile(t *testing.T) {
	t.Chdir(t.TempDir())
	writeKeys(t, "key", elliptic.P256())
	key := must(modelsig.ParsePrivateKey(must(os.ReadFile("key.pem"))))
	sum := sha256.Sum256([]byte("abc"))
	m := &modelsig.Manifest{Model: "weights", Hash: "sha256", IgnorePaths: []string{}, Files: []modelsig.File{{Name: modelsig.SingleFile, Sums: [][]byte{sum[:]}}}}
	write(t, "weights.sig", string(must(modelsig.Sign(m, key, nil))))
	verify := []string{"verify", "weights", "--signature", "weights.sig", "--public-key", "key.pub"}
	write(t, "weights", "abc")
	require.Contains(t, succeeds(t, verify...), "weights: OK\n")
	write(t, "weights", "abd")
	r := runs(t, verify...)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "weights: DIFFERS\n")
}

// TestSignAway signs by a certificate, and into the model itself, and verifies a file on a web
// server; the rest is in testdata/sign.txt.
func TestSignAway(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, ".")
	succeeds(t, "sign", "model", "--key", "key.pem", "--cert", "key.crt", "--out", "model/model.sig")
	require.Contains(t, succeeds(t, "verify", "model", "--signature", "model/model.sig", "--chain", "key.root"), "whose certificate is from CN=root\nconfig.json: OK\n")
	require.NoError(t, os.Remove("model/model.sig"))
	dir := must(filepath.Abs("model"))
	succeeds(t, "sign", "file://"+filepath.ToSlash(dir), "--key", "key.pem")
	require.Contains(t, succeeds(t, "verify", "file://"+filepath.ToSlash(dir), "--signature", "model.sig", "--public-key", "key.pub"), "sub/x: OK\n")
	url := serve(t, http.FileServer(http.Dir("model")).ServeHTTP)
	file := "model-00001-of-00003.safetensors"
	succeeds(t, "sign", filepath.Join("model", file), "--key", "key.pem", "--out", "file.sig")
	byKey := []string{"--signature", "file.sig", "--public-key", "key.pub"}
	require.Contains(t, succeeds(t, append([]string{"verify", url + "/" + file}, byKey...)...), file+": OK")
	require.Contains(t, fails(t, 1, append([]string{"verify", url + "/absent"}, byKey...)...), "404")
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	require.NotContains(t, fails(t, 1, append([]string{"verify", down.URL + "/x?token=secret"}, byKey...)...), "secret")
	write(t, "model/"+file, "other")
	require.Contains(t, runs(t, append([]string{"verify", url + "/" + file}, byKey...)...).stdout, file+": DIFFERS")
}

// TestUnreadableKeys: the error of a key or a certificate that cannot be read names its file.
func TestUnreadableKeys(t *testing.T) {
	t.Chdir(t.TempDir())
	writeShards(t, "model")
	writeKeys(t, "key", elliptic.P256())
	succeeds(t, "sign", "model", "--key", "key.pem")
	write(t, "bad.pem", "bad")
	for _, flag := range []string{"--public-key", "--chain"} {
		for _, name := range []string{"none.pem", "bad.pem"} {
			require.Contains(t, fails(t, exitFailed, "verify", "model", "--signature", "model.sig", flag, name), name, flag)
		}
	}
}
