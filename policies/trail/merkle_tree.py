"""The Merkle tree of RFC 9162 over a log's leaves, stored as its frontier: one hash for each
complete subtree, at most 64. Knows nothing of entries."""

import hashlib
from dataclasses import dataclass, field

_sha256 = hashlib.sha256
_HASH = 32


def leaf_hash(entry: bytes) -> bytes:
    # The first byte differs from a node's (RFC 9162, 2.1.1): otherwise a node's bytes could be
    # passed off as an entry.
    return _sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return _sha256(b"\1" + left + right).digest()


@dataclass(slots=True)
class Frontier:
    """A Merkle tree of `size` leaves that can grow, without its leaves. `hashes` holds the root
    hashes of its complete subtrees, from the largest to the smallest: one for each bit set in
    `size`."""

    size: int = 0
    hashes: list[bytes] = field(default_factory=list)

    def append(self, leaf: bytes) -> None:
        hashes, bits = self.hashes, self.size
        # As in binary addition, each trailing 1 of `size` carries: two subtrees of equal height
        # merge into one of the next. `node_hash` is inlined, since this runs for every leaf.
        while bits & 1:
            leaf = _sha256(b"\1" + hashes.pop() + leaf).digest()
            bits >>= 1
        hashes.append(leaf)
        self.size += 1

    def append_subtree(self, level: int, root: bytes) -> None:
        """Append a complete subtree of `2**level` leaves. `size` must be a multiple of that."""
        hashes, bits = self.hashes, self.size >> level
        while bits & 1:
            root = node_hash(hashes.pop(), root)
            bits >>= 1
        hashes.append(root)
        self.size += 1 << level

    def root(self) -> bytes:
        """Return the tree's root hash; for an empty tree, SHA-256 of no bytes (RFC 9162, 2.1.1)."""
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
        """Parse a frontier: the reverse of `to_bytes`. Raises `ValueError` unless `raw` fits `size`
        leaves."""
        if len(raw) != size.bit_count() * _HASH:
            raise ValueError(
                f"a frontier of {size} leaves has {size.bit_count() * _HASH} bytes, not {len(raw)}"
            )
        return cls(size, [raw[at : at + _HASH] for at in range(0, len(raw), _HASH)])
