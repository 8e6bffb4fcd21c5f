"""The Merkle tree of RFC 9162 over a log's leaves, stored as its frontier: one hash for each
complete subtree, at most 64. Knows nothing of entries."""

import hashlib
from dataclasses import dataclass, field

_sha256 = hashlib.sha256
_HASH = 32


def leaf_hash(entry: bytes) -> bytes:
    return _sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return _sha256(b"\1" + left + right).digest()


@dataclass(slots=True)
class Frontier:
    """A tree of `size` leaves. `hashes` holds the roots of its complete subtrees, from the largest
    to the smallest: one for each bit set in `size`."""

    size: int = 0
    hashes: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> None:
        hashes, bits = self.hashes, self.size
        # As in binary addition, each trailing 1 of `size` carries: two subtrees of equal height
        # merge into one of the next. Inlined rather than `_push`: it runs for every leaf.
        while bits & 1:
            leaf = _sha256(b"\1" + hashes.pop() + leaf).digest()
            bits >>= 1
        hashes.append(leaf)
        self.size += 1

    def extend(self, later: "Frontier") -> None:
        """Append the leaves of another tree, one whole subtree at a time. Raises `ValueError` if
        the subtrees don't align: `later` may have at most as many leaves as the smallest complete
        subtree here."""
        if self.size and later.size > self.size & -self.size:
            raise ValueError(f"{later.size} leaves can't follow {self.size}: subtrees don't align")
        rest = later.size
        for subtree in later.hashes:
            level = rest.bit_length() - 1
            rest -= 1 << level
            self._push(subtree, level)

    def _push(self, subtree: bytes, level: int) -> None:
        bits = self.size >> level
        while bits & 1:
            subtree = node_hash(self.hashes.pop(), subtree)
            bits >>= 1
        self.hashes.append(subtree)
        self.size += 1 << level

    def root(self) -> bytes:
        """The tree's root hash; for an empty tree, SHA-256 of no bytes (RFC 9162, 2.1.1)."""
        if not self.hashes:
            return _sha256(b"").digest()
        root = self.hashes[-1]
        for left in reversed(self.hashes[:-1]):
            root = node_hash(left, root)
        return root

    def to_bytes(self) -> bytes:
        return b"".join(self.hashes)

    @classmethod
    def from_bytes(cls, size: int, raw: bytes) -> "Frontier":
        """The reverse of `to_bytes`. Raises `ValueError` unless `raw` fits `size` leaves."""
        if len(raw) != size.bit_count() * _HASH:
            raise ValueError(
                f"a frontier of {size} leaves has {size.bit_count() * _HASH} bytes, not {len(raw)}"
            )
        return cls(size, [raw[at : at + _HASH] for at in range(0, len(raw), _HASH)])
