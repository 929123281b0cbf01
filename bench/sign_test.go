package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkSign signs a folder of one file, 1 GiB in the page cache, with a key of P-256,
// and verifies the signature, as a whole job: the command safetensors, a process per run.
//
// Every contestant may use all CPUs. That the process of Python starts, about a second,
// is not counted; that ours does is.
//
// What bounds it: SHA-256, which goes through a file from its start to its end: both
// contestants use the same instructions, and one CPU for one file.
//
//   - ours: safetensors sign, verify --signature
//   - model-signing: model-signing 1.1.1: signing.Config.sign, verifying.Config.verify, with their defaults
func BenchmarkSign(b *testing.B) {
	file, size := jobModel()
	model := input("model", func(path string) {
		check(os.Mkdir(path, 0o777))
		check(os.Link(file, filepath.Join(path, "model.safetensors")))
	})
	private := input("key.pem", makeKey)
	public := private + ".pub"
	signed := input("signed.sig", func(path string) {
		must(exec.Command(built(), "sign", "--quiet", model, "--key", private, "--out", path).Output())
	})
	w, target := job(b, *inputs, size, "new.sig", func() { readThrough(file) })
	b.Run("sign-all-CPUs/impl=ours", w.command("sign", "--quiet", model, "--key", private, "--out", target))
	b.Run("sign-all-CPUs/impl=model-signing", w.foreign(signing, "sign", model, private, target))
	b.Run("verify-all-CPUs/impl=ours", w.command("verify", "--quiet", model, "--signature", signed, "--public-key", public))
	b.Run("verify-all-CPUs/impl=model-signing", w.foreign(signing, "verify", model, public, signed))
}

// makeKey writes a private key, and next to it the public one.
func makeKey(path string) {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	private := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(key))})
	check(os.WriteFile(path, private, 0o600))
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(key.Public()))})
	check(os.WriteFile(path+".pub", public, 0o666))
}
