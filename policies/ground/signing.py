"""Ed25519 signatures, and keys that follow one another, each endorsed by the one before it. The one
module that imports a cryptography library. Knows no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from policies.ground.canonical import b64, encode, unb64


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


@dataclass(frozen=True, slots=True)
class Endorsement:
    """The key `former` said, with its signature, that `next` signs from here on; public halves."""

    former: bytes
    next: bytes
    signature: bytes

    @classmethod
    def by(cls, signer: Signer, successor: bytes) -> "Endorsement":
        message = rotation_message(signer.public, successor)
        return cls(signer.public, successor, signer.sign(message))

    def holds(self) -> bool:
        return verify(self.former, self.signature, rotation_message(self.former, self.next))

    def to_wire(self) -> dict[str, str]:
        raw = {"from": self.former, "to": self.next, "signature": self.signature}
        return {name: b64(value) for name, value in raw.items()}

    @classmethod
    def from_wire(cls, wire: Any) -> "Endorsement":
        """`ValueError`, `TypeError` or `LookupError` where it can't be read; what it says is for
        `holds`."""
        return cls(unb64(wire["from"]), unb64(wire["to"]), unb64(wire["signature"]))


def rotation_message(former: bytes, successor: bytes) -> bytes:
    """What an endorsement signs."""
    return b"sluice/key-rotation/v1\0" + encode({"from": b64(former), "to": b64(successor)})


def endorsed(pinned: bytes, chain: Sequence[Endorsement]) -> bytes | None:
    """The key that `chain`, oldest first, leads to from `pinned`: itself where the chain does not
    mention it, None where an endorsement after it does not hold or does not follow."""
    at = next((i for i, each in enumerate(chain) if each.former == pinned), len(chain))
    for each in chain[at:]:
        if each.former != pinned or not each.holds():
            return None
        pinned = each.next
    return pinned


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The key that signs, and the endorsements that led to it, oldest first. INVARIANT: they hold,
    each follows the one before, and the last is of this key."""

    signer: Signer
    history: tuple[Endorsement, ...] = ()

    def __post_init__(self) -> None:
        first = self.history[0].former if self.history else self.signer.public
        if endorsed(first, self.history) != self.signer.public:
            raise ValueError("the endorsements do not lead to the key")

    def rotated(self, successor: Signer) -> "KeyRing":
        """With `successor` in place of this key, which endorses it."""
        made = Endorsement.by(self.signer, successor.public)
        return KeyRing(successor, (*self.history, made))

    def believed(self, later: Sequence[Endorsement] = ()) -> tuple[bytes, ...]:
        """The keys whose signatures count: this one, those before it, and those that `later`
        leads on to."""
        publics = [*(each.former for each in self.history), self.signer.public]
        for each in later:
            if each.former == publics[-1] and each.holds():
                publics.append(each.next)
        return tuple(publics)
