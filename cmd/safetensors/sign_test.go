package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
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

// writeModel writes a model with the files that are and are not signed, and its keys.
func writeModel(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	writeShards(t, "model")
	write(t, "model/config.json", "{}")
	write(t, "model/sub/x", "x")
	write(t, "model/sub-1/x", "y")
	write(t, "model/sub/.git", "signed, not at the top")
	write(t, "model/.git/config", "not signed")
	write(t, "model/.gitattributes", "not signed")
	write(t, "model/empty", "")
	write(t, filepath.Join("model", oddName(t)), "quoted")
	writeKeys(t, "key", elliptic.P256())
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
	return strings.Replace(signedFiles, "NAME", term.Name(oddName(t)), 1)
}

const signedFiles = `config.json: OK
empty: OK
NAME: OK
model-00001-of-00003.safetensors: OK
model-00002-of-00003.safetensors: OK
model-00003-of-00003.safetensors: OK
model.safetensors.index.json: OK
sub-1/x: OK
sub/.git: OK
sub/x: OK
`

func TestSign(t *testing.T) {
	writeModel(t)
	r := runs(t, "sign", "model", "--key", "key.pem")
	require.Equal(t, result{"", "model.sig: 10 files\n", 0}, r)
	byKey := []string{"verify", "model", "--signature", "model.sig", "--public-key", "key.pub"}
	require.Equal(t, "signed by the key key.pub\n"+signedModel(t), succeeds(t, byKey...))
	require.Contains(t, fails(t, 1, "sign", "model", "--key", "key.pem"), "model.sig exists: --force replaces it")
	succeeds(t, "sign", "model/", "--key", "key.pem", "--force")

	// By certificate, into the model itself.
	succeeds(t, "sign", "model", "--key", "key.pem", "--cert", "key.crt", "--out", "model/model.sig")
	byCertificate := []string{"verify", "model", "--signature", "model/model.sig", "--chain", "key.root"}
	require.Equal(t, "signed by \"CN=\\x1b[31mleaf\", by the word of CN=root\n"+signedModel(t), succeeds(t, byCertificate...))
	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "model/model.sig", "--public-key", "key.pub"), "signed with a certificate")
	require.Contains(t, runs(t, byKey...).stdout, "model.sig: NOT SIGNED\n")
	require.Equal(t, 1, runs(t, byKey...).code)
	require.NoError(t, os.Remove("model/model.sig"))

	// Single files, by the name of the file.
	succeeds(t, "sign", "model/config.json", "--key", "key.pem")
	require.Equal(t, "signed by the key key.pub\nconfig.json: OK\n",
		succeeds(t, "verify", "model/config.json", "--signature", "model/config.json.sig", "--public-key", "key.pub"))
	r = runs(t, "verify", "model/sub/x", "--signature", "model/config.json.sig", "--public-key", "key.pub")
	require.Equal(t, "signed by the key key.pub\nconfig.json: MISSING\nx: NOT SIGNED\n", r.stdout)
	require.Equal(t, 1, r.code)
	r = runs(t, "verify", "--json", "model/sub/x", "--signature", "model/config.json.sig", "--public-key", "key.pub")
	require.Equal(t, result{`{"file":"model/sub/x","ok":false,"signed_by":"the key key.pub",` +
		`"files":[{"name":"config.json","result":"missing"},{"name":"x","result":"uncovered"}]}` + "\n", "", 1}, r)
	require.NoError(t, os.Remove("model/config.json.sig"))
	t.Chdir("model")
	succeeds(t, "sign", ".", "--key", "../key.pem", "--out", "../dot.sig")
	succeeds(t, "verify", ".", "--signature", "../dot.sig", "--public-key", "../key.pub")
}

// TestSignRefuses has what cannot be signed.
func TestSignRefuses(t *testing.T) {
	writeModel(t)
	writeKeys(t, "other", elliptic.P384())
	write(t, "nothing/.git/config", "")
	write(t, "lacks/model.safetensors.index.json", `{"weight_map":{"x":"model-00001-of-00001.safetensors"}}`)
	write(t, "bad/model.safetensors.index.json", `{`)
	require.Contains(t, fails(t, 2, "sign", "model"), "--key is missing; for the keyless method of Sigstore, use: model_signing")
	require.Contains(t, fails(t, 2, "sign", "model", "--key", "key.pem", "--chain", "key.root"), "--chain needs --cert")
	for _, c := range []struct{ args, want string }{
		{"model --key absent", "absent"},
		{"model --key key.pub", `no PEM block "PRIVATE KEY" in it, but a "PUBLIC KEY"`},
		{"model --key key.pem --cert other.crt", "other.crt is not the certificate of the key key.pem"},
		{"model --key key.pem --cert key.root", "not one for signing"},
		{"absent --key key.pem", "absent: " + syscall.ENOENT.Error()},
		{"nothing --key key.pem", "covers no file"},
		{"lacks --key key.pem", "model.safetensors.index.json names model-00001-of-00001.safetensors, which would not be signed"},
		{"model --key key.pem --ignore model-00002-of-00003.safetensors", "names model-00002-of-00003.safetensors, which would not be signed"},
		{"bad --key key.pem", "model.safetensors.index.json"},
		{"nonsense://a/b --key key.pem --out x", "expected a file, a folder, a bucket"},
		{"absent --key key.pem --out nowhere/x.sig", "--out nowhere/x.sig: "}, // before the model is read
	} {
		require.Contains(t, fails(t, 1, append([]string{"sign"}, strings.Fields(c.args)...)...), c.want, c.args)
	}
	for _, path := range []string{"*.json", "/etc", "../x", ".", "a/"} {
		require.Contains(t, fails(t, 2, "sign", "model", "--key", "key.pem", "--ignore", path), "expected a path in the model")
	}
	require.Contains(t, fails(t, 2, "sign", "s3://x/y", "--key", "key.pem"), "--out is missing")
	require.Contains(t, fails(t, 2, "sign", "model", "--key", "key.pem", "--out", "-"), "--out -: expected the name of a file")
	require.NoFileExists(t, "model.sig")
	left := must(filepath.Glob("*.tmp"))
	require.Empty(t, left)
}

// TestVerifySignature changes a signed model in every way, one at a time.
func TestVerifySignature(t *testing.T) {
	writeModel(t)
	writeKeys(t, "other", elliptic.P256())
	succeeds(t, "sign", "model", "--key", "key.pem", "--ignore", "cache")
	verify := []string{"verify", "model", "--signature", "model.sig", "--public-key", "key.pub"}
	mustMove := func(from, to string) { require.NoError(t, os.Rename(from, to)) }
	shard := "model/model-00002-of-00003.safetensors"
	data := must(os.ReadFile(shard))
	for _, c := range []struct {
		what     string
		do, undo func()
		args     []string
		want     string // "" if it is accepted
	}{
		{"a changed byte", func() { data[len(data)-1] ^= 1; write(t, shard, string(data)) },
			func() { data[len(data)-1] ^= 1; write(t, shard, string(data)) }, nil, "model-00002-of-00003.safetensors: DIFFERS\n"},
		{"a removed byte", func() { write(t, shard, string(data[1:])) }, func() { write(t, shard, string(data)) }, nil, "model-00002-of-00003.safetensors: DIFFERS\n"},
		{"a removed file", func() { mustMove("model/config.json", "c") }, func() { mustMove("c", "model/config.json") }, nil, "config.json: MISSING\n"},
		{"a renamed file", func() { mustMove("model/sub/x", "model/sub/y") }, func() { mustMove("model/sub/y", "model/sub/x") }, nil, "sub/x: MISSING\nsub/y: NOT SIGNED\n"},
		{"an added file", func() { write(t, "model/sub/evil.py", "") }, func() {}, nil, "sub/evil.py: NOT SIGNED\n"},
		{"an added file of code", func() {}, func() {}, []string{"--ignore-unsigned-files"}, "sub/evil.py: NOT SIGNED\n"},
		{"an added file that is ignored", func() {}, func() { require.NoError(t, os.Remove("model/sub/evil.py")) }, []string{"--ignore", "sub/evil.py"}, ""},
		{"an added file that the signer ignores", func() { write(t, "model/cache/x", "") }, func() {}, nil, ""},
		{"an index that names what is not signed",
			func() {
				write(t, "model/other.safetensors.index.json", `{"weight_map":{"x":"cache/x.safetensors"}}`)
				write(t, "model/cache/x.safetensors", "")
			},
			func() { require.NoError(t, os.Remove("model/other.safetensors.index.json")) }, []string{"--ignore-unsigned-files"},
			"cache/x.safetensors: NOT SIGNED, but other.safetensors.index.json names it\n"},
		{"a folder in place of a file", func() { mustMove("model/config.json", "c"); write(t, "model/config.json/x", "") },
			func() { require.NoError(t, os.RemoveAll("model/config.json")); mustMove("c", "model/config.json") }, nil,
			"config.json: MISSING\nconfig.json/x: NOT SIGNED\n"},
		{"nothing", func() {}, func() {}, nil, ""},
	} {
		c.do()
		r := runs(t, append(verify, c.args...)...)
		c.undo()
		if c.want == "" {
			require.Equal(t, 0, r.code, "%s: %s%s", c.what, r.stdout, r.stderr)
			continue
		}
		require.Equal(t, 1, r.code, c.what)
		require.Contains(t, r.stdout, c.want, c.what)
		require.Empty(t, r.stderr, c.what)
	}

	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "model.sig", "--public-key", "other.pub"), "model.sig: signed with another key")
	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "model.sig", "--public-key", "key.pem"), `no PEM block "PUBLIC KEY"`)
	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "key.pem", "--public-key", "key.pub"), "key.pem: is not JSON")
	require.Contains(t, fails(t, 1, "verify", "absent", "--signature", "model.sig", "--public-key", "key.pub"), "absent: "+syscall.ENOENT.Error())
	for _, args := range []string{"--signature model.sig", "--signature model.sig --public-key key.pub --chain key.root", "--public-key key.pub", "--ignore x",
		"", "manifest --signature model.sig --public-key key.pub", "--signature model.sig --public-key key.pub --tensors"} {
		fails(t, 2, append([]string{"verify", "model"}, strings.Fields(args)...)...)
	}
	write(t, "keyless.sig", `{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"certificate":{}}}`)
	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "keyless.sig", "--public-key", "key.pub"),
		"keyless.sig: it is a keyless signature (Sigstore: Fulcio, Rekor), which is not supported; the signature alone can be verified with: cosign verify-blob-attestation --bundle keyless.sig")
	require.NoError(t, os.Truncate("keyless.sig", 100<<20))
	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "keyless.sig", "--public-key", "key.pub"), "keyless.sig: more than 67108864 bytes")
}

// TestIgnoreUnsigned adds files to a signed model: what Open, transformers or a loader of code
// could read is never ignored, nor is what nobody knows.
func TestIgnoreUnsigned(t *testing.T) {
	writeModel(t)
	succeeds(t, "sign", "model", "--key", "key.pem")
	verify := []string{"verify", "model", "--signature", "model.sig", "--public-key", "key.pub", "--ignore-unsigned-files"}
	for name, ok := range map[string]bool{
		"README.md": true, "sub/README": true, "LICENSE.txt": true, "docs/figure.png": true, "model.sig": true,
		"model.safetensors": false, "sub/x.safetensors": false, "pytorch_model.bin": false, "consolidated.00.pth": false,
		"adapter_model.bin": false, "model.gguf": false, "tf_model.h5": false, "flax_model.msgpack": false, "x.onnx": false,
		"x.safetensors.index.json": false, "x.bin.index.json": false, "x.index.json": false, "x.pkl": false, "x.ckpt": false,
		"x.npz": false, "x.bt": false, ".metadata": false, "__0_0.distcp": false,
		"modeling.py": false, "x.pyc": false, "x.so": false, "sub/__init__.py": false,
		"generation_config.json": false, "tokenizer.json": false, "vocab.txt": false, "tokenizer.model": false, "chat_template.jinja": false,
		"x": false, "README.md.py": false, ".md": true, "x.md/y": false, "upper.MD": false,
	} {
		name = "model/" + name
		write(t, name, "")
		r := runs(t, verify...)
		require.NoError(t, os.Remove(name))
		want, code := ": NOT SIGNED\n", 1
		if ok {
			want, code = ": NOT SIGNED, ignored\n", 0
		}
		require.Equal(t, code, r.code, "%s\n%s", name, r.stdout)
		require.Contains(t, r.stdout, strings.TrimPrefix(name, "model/")+want)
	}
	write(t, "model/README.md", "")
	r := runs(t, append(verify, "--json")...)
	require.Equal(t, 0, r.code)
	require.Contains(t, r.stdout, `{"name":"README.md","result":"ignored"}`)
	if runtime.GOOS != "windows" { // where links need a privilege
		require.NoError(t, os.Symlink("README.md", "model/link.md"))
		r := runs(t, verify...)
		require.Equal(t, 1, r.code, "nobody knows what a link leads to tomorrow")
		require.Contains(t, r.stdout, "link.md: SYMBOLIC LINK\n")
	}
}

// TestSignedLinks follows links only where it is told to, by the caller or by a
// signature.
func TestSignedLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symbolic links need a privilege on Windows")
	}
	t.Chdir(t.TempDir())
	writeKeys(t, "key", elliptic.P256())
	write(t, "blobs/1", "weights")
	write(t, "model/config.json", "{}")
	require.NoError(t, os.Symlink("../blobs/1", "model/weights"))
	require.Contains(t, fails(t, 1, "sign", "model", "--key", "key.pem"), "weights is a symbolic link: --allow-symlinks follows it")
	succeeds(t, "sign", "model", "--key", "key.pem", "--ignore", "weights", "--out", "without.sig")
	require.Contains(t, succeeds(t, "verify", "model", "--signature", "without.sig", "--public-key", "key.pub"), "config.json: OK")
	require.Contains(t, runs(t, "sign", "model", "--key", "key.pem", "--allow-symlinks").stderr, "weights is a link that leads out of the model\n")
	require.Contains(t, succeeds(t, "verify", "model", "--signature", "model.sig", "--public-key", "key.pub"), "weights: OK")
	write(t, "blobs/1", "changed")
	require.Contains(t, runs(t, "verify", "model", "--signature", "model.sig", "--public-key", "key.pub").stdout, "weights: DIFFERS")
	write(t, "blobs/1", "weights")

	// A model that is signed without links, in a cache that consists of links.
	require.NoError(t, os.Remove("model/weights"))
	write(t, "model/weights", "weights")
	succeeds(t, "sign", "model", "--key", "key.pem", "--force")
	require.NoError(t, os.Remove("model/weights"))
	require.NoError(t, os.Symlink("../blobs/1", "model/weights"))
	r := runs(t, "verify", "model", "--signature", "model.sig", "--public-key", "key.pub")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "weights: SYMBOLIC LINK")
	r = runs(t, "verify", "model", "--signature", "model.sig", "--public-key", "key.pub", "--json")
	require.Contains(t, r.stdout, `{"name":"weights","result":"link"}`)
	succeeds(t, "verify", "model", "--signature", "model.sig", "--public-key", "key.pub", "--allow-symlinks")
	require.Equal(t, 1, runs(t, "verify", "model", "--signature", "model.sig", "--public-key", "key.pub", "--ignore-unsigned-files").code)

	require.NoError(t, os.Symlink(".", "model/circle"))
	require.Contains(t, fails(t, 1, "sign", "model", "--key", "key.pem", "--allow-symlinks", "--out", "x"), "link circle leads in a circle")
	require.NoError(t, os.Remove("model/circle"))
	require.NoError(t, os.Symlink("nowhere", "model/broken"))
	require.Contains(t, fails(t, 1, "sign", "model", "--key", "key.pem", "--allow-symlinks", "--out", "x"), "the link broken leads nowhere")
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

// TestSignAway verifies a file on a web server.
func TestSignAway(t *testing.T) {
	writeModel(t)
	dir := must(filepath.Abs("model"))
	succeeds(t, "sign", "file://"+filepath.ToSlash(dir), "--key", "key.pem")
	require.Contains(t, succeeds(t, "verify", "file://"+filepath.ToSlash(dir), "--signature", "model.sig", "--public-key", "key.pub"), "sub/x: OK\n")
	server := httptest.NewServer(http.FileServer(http.Dir("model")))
	defer server.Close()
	file := "model-00001-of-00003.safetensors"
	succeeds(t, "sign", filepath.Join("model", file), "--key", "key.pem", "--out", "file.sig")
	byKey := []string{"--signature", "file.sig", "--public-key", "key.pub"}
	require.Contains(t, succeeds(t, append([]string{"verify", server.URL + "/" + file}, byKey...)...), file+": OK")
	require.Contains(t, fails(t, 1, append([]string{"verify", server.URL + "/absent"}, byKey...)...), "404")
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	require.NotContains(t, fails(t, 1, append([]string{"verify", down.URL + "/x?token=secret"}, byKey...)...), "secret")
	write(t, "model/"+file, "other")
	require.Contains(t, runs(t, append([]string{"verify", server.URL + "/" + file}, byKey...)...).stdout, file+": DIFFERS")
}

// TestSignatureIsJSON reads a signature as other programs do.
func TestSignatureIsJSON(t *testing.T) {
	writeModel(t)
	succeeds(t, "sign", "model", "--key", "key.pem", "--ignore", "sub/x", "--out", "model/x.sig")
	text := must(os.ReadFile("model/x.sig"))
	var bundle struct {
		DSSEEnvelope struct{ Payload []byte }
	}
	require.NoError(t, json.Unmarshal(text, &bundle))
	var statement struct {
		Predicate struct {
			Resources     []struct{ Name string }
			Serialization map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(bundle.DSSEEnvelope.Payload, &statement))
	require.Equal(t, map[string]any{
		"method": "files", "hash_type": "sha256", "allow_symlinks": false,
		"ignore_paths": []any{".git", ".gitattributes", ".github", ".gitignore", "sub/x", "x.sig"},
	}, statement.Predicate.Serialization)
	var names []string
	for _, r := range statement.Predicate.Resources {
		names = append(names, r.Name)
	}
	require.IsIncreasing(t, names, "in the order of the specification")
	require.Len(t, names, 9)
}
