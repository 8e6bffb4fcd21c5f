"""Ed25519 signatures: of receipts now, of checkpoints and policy sets as they come. The one module
that imports a cryptography library. Knows no files but the one it is told to read or make."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from policies.ground.canonical import b64, encode


class Signer:
    """A private key of 32 bytes. Its representation never shows it."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> "Signer":
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def seed(self) -> bytes:
        """The 32 bytes that `Signer` takes: for a file with mode 0600 and nowhere else."""
        return self._key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether `signature` (64 bytes) over `message` is by the key whose public half is given."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def receipt_message(tenant_id: str, source: str, instance: str, n: int, hash_: bytes) -> bytes:
    """What a receipt signs: of this source's spool, everything up to `n`, whose record has this
    hash, is in the tenant's log."""
    fields = {"tenant": tenant_id, "source": source, "inst": instance, "n": n, "hash": b64(hash_)}
    return b"audit/receipt/v1\0" + encode(fields)
