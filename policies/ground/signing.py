"""Ed25519 signatures, and signing keys that are replaced by rotation, where each key endorses the
next one.

The only module that imports a cryptography library. Knows no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from policies.ground.canonical import b64, encode, unb64


class Signer:
    """An Ed25519 private key (32 bytes) that signs messages. Its `repr` never shows the key."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> "Signer":
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    def seed(self) -> bytes:
        """Return the private key: 32 bytes, for a file with mode 0600 and nowhere else."""
        return self._key.private_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, 64 bytes."""
        return self._key.sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether `signature` (64 bytes) over `message` was made with the private key that
    belongs to `public`."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):  # ValueError: the public key has the wrong length
        return False
    return True


def receipt_message(tenant_id: str, source: str, instance: str, n: int, hash_: bytes) -> bytes:
    """Return the message that a receipt signs. It states that the log contains the records of this
    source (an enforcement point's id and instance) up to number `n`, and that record `n` has this
    hash."""
    # Every kind of signed message has its own prefix, which ends with a byte that no JSON contains:
    # a signature of one kind never fits another.
    fields = {"tenant": tenant_id, "source": source, "inst": instance, "n": n, "hash": b64(hash_)}
    return b"audit/receipt/v1\0" + encode(fields)


@dataclass(frozen=True, slots=True)
class Endorsement:
    """A signed statement that a signing key was rotated: key `former` signed that key `next`
    succeeds it. Both are public keys."""

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
        """Parse an endorsement without verifying it, which `holds` does. Raises `ValueError`,
        `TypeError` or `LookupError` if it can't be parsed."""
        return cls(unb64(wire["from"]), unb64(wire["to"]), unb64(wire["signature"]))


def rotation_message(former: bytes, successor: bytes) -> bytes:
    """Return the message that key `former` signs to endorse key `successor`."""
    return b"sluice/key-rotation/v1\0" + encode({"from": b64(former), "to": b64(successor)})


def endorsed(pinned: bytes, chain: Sequence[Endorsement]) -> bytes | None:
    """Follow `chain`, the endorsements from the oldest on, from the trusted key `pinned`, and
    return the newest key that is trusted by it.

    Return `pinned` itself if it endorsed no key in the chain, and None if a later endorsement is
    invalid or does not continue from the one before.
    """
    # Skip the endorsements that led to `pinned`: it is trusted already.
    at = next((i for i, each in enumerate(chain) if each.former == pinned), len(chain))
    for each in chain[at:]:
        if each.former != pinned or not each.holds():
            return None
        pinned = each.next
    return pinned


@dataclass(frozen=True, slots=True)
class KeyRing:
    """A signing key with the endorsements of all rotations that led to it, oldest first.

    INVARIANT: every endorsement is valid and continues from the one before; the last endorses the
    signing key.
    """

    signer: Signer
    history: tuple[Endorsement, ...] = ()

    def __post_init__(self) -> None:
        # Refuse it before the first signature: no sidecar would accept such a key.
        first = self.history[0].former if self.history else self.signer.public
        if endorsed(first, self.history) != self.signer.public:
            raise ValueError("the endorsements do not lead to the key")

    def rotated(self, successor: Signer) -> "KeyRing":
        """Return a new ring with `successor` as its signing key, endorsed by the current key."""
        made = Endorsement.by(self.signer, successor.public)
        return KeyRing(successor, (*self.history, made))

    def continued(self, later: Sequence[Endorsement]) -> tuple[Endorsement, ...]:
        """Return the ring's endorsements, followed by those of `later` that continue them beyond
        the signing key."""
        chain, newest = list(self.history), self.signer.public
        # Follow only endorsements by the newest key: a former key could endorse a stranger's.
        for each in later:
            if each.former == newest and each.holds():
                chain.append(each)
                newest = each.next
        return tuple(chain)

    def trusted(self, later: Sequence[Endorsement] = ()) -> tuple[bytes, ...]:
        """Return the public keys whose signatures are trusted: the signing key, its predecessors,
        and the successors to which the endorsements in `later` lead."""
        chain = self.continued(later)
        first = chain[0].former if chain else self.signer.public
        return (first, *(each.next for each in chain))
