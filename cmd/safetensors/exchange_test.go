package main

import (
	"crypto/elliptic"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pythontest"
	"github.com/stretchr/testify/require"
)

// signAs signs with the classes of the Python package, for what its command cannot do.
const signAs = `
import sys
from model_signing import hashing, signing
kind, size, out, model = sys.argv[1:]
config = hashing.Config()
if kind == "shards":
    config.use_shard_serialization(shard_size=int(size))
else:
    config.use_file_serialization(hashing_algorithm=kind)
signing.Config().use_elliptic_key_signer(private_key="key.pem").set_hashing_config(config).sign(model, out)
`

// TestModelSigning exchanges signatures with the Python package model-signing, both
// ways, by all methods that both have.
func TestModelSigning(t *testing.T) {
	python := func(args ...string) {
		t.Helper()
		pythontest.Run(t, "SAFETENSORS_MODEL_SIGNING", "model_signing, OpenSSL", args...)
	}
	python("-c", "") // or skip
	theirs := func(line string) {
		t.Helper()
		python(append([]string{"-m", "model_signing"}, strings.Fields(line)...)...)
	}
	ours := func(line string) string { t.Helper(); return succeeds(t, strings.Fields(line)...) }
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		t.Run(curve.Params().Name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			writeModel(t, ".")
			writeKeys(t, "key", curve)
			ours("sign model --key key.pem --out our.sig --ignore sub-1")
			theirs("verify key model --signature our.sig --public_key key.pub")
			ours("sign model --key key.pem --cert key.crt --chain key.root --out model/our.sig")
			theirs("verify certificate model --signature model/our.sig --certificate_chain key.root")
			require.NoError(t, os.Remove("model/our.sig"))

			theirs("sign key model --private_key key.pem --signature their.sig")
			require.Contains(t, ours("verify model --signature their.sig --public-key key.pub"), signedModel(t))
			theirs("sign certificate model --private_key key.pem --signing_certificate key.crt --certificate_chain key.root --signature model/their.sig")
			require.Contains(t, ours("verify model --signature model/their.sig --chain key.root"), signedModel(t))

			write(t, "model/config.json", "{ }")
			require.Equal(t, 1, runs(t, "verify", "model", "--signature", "their.sig", "--public-key", "key.pub").code)
			interpreter := os.Getenv("SAFETENSORS_MODEL_SIGNING")
			require.Error(t, exec.Command(interpreter, "-m", "model_signing", "verify", "key", "model", "--signature", "our.sig", "--public_key", "key.pub").Run())
		})
	}
	t.Chdir(t.TempDir())
	writeModel(t, ".")
	require.NoError(t, os.Symlink("config.json", "model/link"))
	ours("sign model --key key.pem --allow-symlinks --out our.sig")
	theirs("verify key model --signature our.sig --public_key key.pub --allow_symlinks")
	theirs("sign key model --private_key key.pem --signature their.sig --allow_symlinks")
	require.Contains(t, ours("verify model --signature their.sig --public-key key.pub"), "link: OK")
	require.NoError(t, os.Remove("model/link"))

	theirs("sign key model/config.json --private_key key.pem --signature file.sig")
	require.Contains(t, ours("verify model/config.json --signature file.sig --public-key key.pub"), "config.json: OK")

	python("-c", signAs, "blake2", "0", "blake2b.sig", "model")
	require.Contains(t, ours("verify model --signature blake2b.sig --public-key key.pub"), signedModel(t))
	python("-c", signAs, "shards", "50", "shards.sig", "model")
	r := runs(t, "verify", "model", "--signature", "shards.sig", "--public-key", "key.pub")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, strings.Replace(signedModel(t), "empty: OK", "empty: NOT SIGNED", 1), "it has no shard to be signed")
	require.NoError(t, os.Remove("model/empty"))
	require.Contains(t, ours("verify model --signature shards.sig --public-key key.pub"), strings.Replace(signedModel(t), "empty: OK\n", "", 1))
	python("-c", signAs, "shards", "1", "single.sig", "model/config.json")
	require.Contains(t, ours("verify model/config.json --signature single.sig --public-key key.pub"), "config.json: OK")
	write(t, "model/sub/x", "z")
	write(t, "model/sub-1/x", "longer")
	r = runs(t, "verify", "model", "--signature", "shards.sig", "--public-key", "key.pub")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stdout, "sub-1/x: DIFFERS\nsub/.git: OK\nsub/x: DIFFERS\n")
	python("-c", signAs, "blake3", "0", "blake3.sig", "model")
	require.Contains(t, fails(t, 1, "verify", "model", "--signature", "blake3.sig", "--public-key", "key.pub"), `hash "blake3" of the format is not supported`)
}
