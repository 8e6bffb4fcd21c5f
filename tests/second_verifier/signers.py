"""Keys made from numbers, and what they sign: checkpoints, cosignatures, endorsements."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.second_verifier import encoding
from tests.second_verifier.notes import COSIGNATURE, ED25519, key_id_of


def base64(raw: bytes) -> str:
    """Base64 with padding."""
    return b64encode(raw).decode()


@dataclass
class Signer:
    """An Ed25519 key, made from a number."""

    private: Ed25519PrivateKey

    @classmethod
    def numbered(cls, number: int) -> Signer:
        """The same key for the same number."""
        return cls(Ed25519PrivateKey.from_private_bytes(sha256(b"key %d" % number).digest()))

    @property
    def public(self) -> bytes:
        """The 32 bytes of the public key."""
        return self.private.public_key().public_bytes_raw()

    def verifier_key(self, name: str, algorithm: int = ED25519) -> str:
        """The key in the form of C2SP `signed-note`."""
        blob = bytes([algorithm]) + self.public
        return f"{name}+{key_id_of(name, algorithm, self.public).hex()}+{base64(blob)}"

    def sign_note(self, origin: str, size: int, root: bytes) -> str:
        """A checkpoint."""
        body = f"{origin}\n{size}\n{base64(root)}\n"
        value = key_id_of(origin, ED25519, self.public) + self.private.sign(body.encode())
        return f"{body}\n\u2014 {origin} {base64(value)}\n"

    def cosign(self, note: str, name: str, seconds: int) -> str:
        """The note with this witness's cosignature."""
        body = note.rpartition("\n\n")[0] + "\n"
        signature = self.private.sign(f"cosignature/v1\ntime {seconds}\n{body}".encode())
        value = key_id_of(name, COSIGNATURE, self.public) + seconds.to_bytes(8, "big") + signature
        return f"{note}\u2014 {name} {base64(value)}\n"

    def endorse(self, to: Signer) -> dict[str, str]:
        """The statement that `to` succeeds this key."""
        statement = {"from": base64(self.public), "to": base64(to.public)}
        message = b"sluice/key-rotation/v1\0" + encoding.write(statement)
        return {**statement, "signature": base64(self.private.sign(message))}
