"""Inclusion proofs from the leaves of an export, while they are read once, in order.

Keeps only the nodes that the proofs need. Knows leaves and places; knows no entry.
"""

from collections.abc import Collection, Sequence

from policies.trail.merkle_tree import Frontier, node_hash
from policies.trail.proofs import inclusion
from policies.trail.proofs.subtree import Node, Part, frontier_nodes


class ProofMaker:
    """Proofs for the leaves `wanted` in the tree of `size` leaves. `before` is the tree of the
    leaves before the first one that will be fed, `until` the number after the last one."""

    def __init__(self, before: Frontier, until: int, size: int, wanted: Collection[int]) -> None:
        self._until, self._size = min(until, size), size
        self._parts = {seq: inclusion.parts(seq, size) for seq in wanted if seq < self._until}
        self._needed = {
            node
            for parts in self._parts.values()
            for part in parts
            if part.end <= self._until
            for node in part.nodes()
        }
        self._nodes: dict[tuple[int, int], bytes] = {}
        self._stack = list(before.hashes)
        self._next = before.size
        self._beyond: dict[Part, bytes] = {}
        self._last = b""
        for node, root in zip(frontier_nodes(before.size), before.hashes, strict=True):
            self._keep(node, root)

    def feed(self, leaf: bytes) -> None:
        """The next leaf hash. Leaves that the tree does not have are ignored."""
        if self._next >= self._size:
            return
        place, level, self._last = self._next, 0, leaf
        self._keep(Node(0, place), leaf)
        # Each trailing 1 of the place completes a larger subtree, as in `Frontier.append`.
        while place & 1:
            leaf = node_hash(self._stack.pop(), leaf)
            place >>= 1
            level += 1
            self._keep(Node(level, place), leaf)
        self._stack.append(leaf)
        self._next += 1

    def tail(self, hashes: Sequence[bytes]) -> None:
        """The proof of the last leaf that was fed, in a tree that is larger than the file. Its
        hashes, and the nodes on its path, are all that other proofs need from beyond the file."""
        first, end, root = self._next - 1, self._next, self._last
        for part, given in zip(inclusion.parts(first, self._size), hashes, strict=True):
            self._beyond[part] = given
            root = node_hash(given, root) if part.first < first else node_hash(root, given)
            first, end = min(first, part.first), max(end, part.end)
            self._beyond[Part(first, end)] = root

    def proof(self, seq: int) -> list[bytes] | None:
        """The proof of leaf `seq`, once all are fed; None if the tree does not have it. Raises
        `LookupError` if the leaves fed were not those that were announced."""
        parts = self._parts.get(seq)
        if parts is None:
            return None
        return [self._root(part) for part in parts]

    def _root(self, part: Part) -> bytes:
        if part.end > self._until:
            return self._beyond[part]
        return part.root(lambda level, place: self._nodes[level, place])

    def _keep(self, node: Node, root: bytes) -> None:
        if node in self._needed:
            self._nodes[node] = root
