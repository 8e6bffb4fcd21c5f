"""The Merkle tree of RFC 9162 over the leaves of a log, kept as its frontier: one hash for each
complete subtree, at most 64 of them. Knows nothing of entries."""

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
    """`size` leaves; `hashes` of the complete subtrees from the largest to the smallest, one for
    each bit of `size`."""

    size: int = 0
    hashes: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> None:
        hashes, bits = self.hashes, self.size
        while bits & 1:
            leaf = _sha256(b"\1" + hashes.pop() + leaf).digest()
            bits >>= 1
        hashes.append(leaf)
        self.size += 1

    def extend(self, later: "Frontier") -> None:
        """Append the leaves of another tree, whole subtrees at a time. `ValueError` where they
        don't fit: the lowest bit of `size` must be no lower than the highest of the other's."""
        if self.size and later.size > self.size & -self.size:
            raise ValueError(f"{later.size} leaves can't follow {self.size} as subtrees")
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
        """The tree's hash; of an empty tree, SHA-256 of nothing."""
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
        """`ValueError` where `raw` is not a frontier of `size` leaves."""
        if len(raw) != size.bit_count() * _HASH:
            raise ValueError(f"{len(raw)} bytes are no frontier of {size} leaves")
        return cls(size, [raw[at : at + _HASH] for at in range(0, len(raw), _HASH)])
