"""The contestant model-signing: signs and verifies a model, with the defaults of its library."""

from pathlib import Path

from model_signing import signing, verifying
from protocol import serve


def sign(model, key, signature):
    return lambda: signing.Config().use_elliptic_key_signer(private_key=Path(key)).sign(Path(model), Path(signature))


def verify(model, key, signature):
    return lambda: verifying.Config().use_elliptic_key_verifier(public_key=Path(key)).verify(Path(model), Path(signature))


serve({"sign": sign, "verify": verify})
