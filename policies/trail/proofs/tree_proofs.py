"""Makes and checks proofs over the tree (RFC 9162). An inclusion proof (2.1.3) shows that a leaf is
number `index` in the tree of a given root; a consistency proof (2.1.4), that a tree is the
beginning of another.

    inclusion_proof(index, size, node)          proves_inclusion(leaf, index, size, hashes, root)
    consistency_proof(old_size, new_size, node)
    proves_consistency(old_size, old_root, new_size, new_root, hashes)
    proves_tail(…)      that a file's entries, and the frontier before them, begin a larger log

`TlogProof` is the text form of an inclusion proof (C2SP `tlog-proof`): all that is needed to check,
without the service, that an entry is in a log, except the entry and the keys.

    c2sp.org/tlog-proof@v1
    [extra <base64>]
    index <index>
    <base64 hash>
    …

    <checkpoint>

Knows hashes and positions. Doesn't know entries, or whether anything signed the roots.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from policies.ground.canonical import NotCanonical, b64, unb64
from policies.trail.merkle_tree import Frontier, node_hash
from policies.trail.proofs.nodes import HASH, MAX_SIZE, NodeReader, Part, split
from policies.trail.proofs.signed_note import MAX_NOTE


def inclusion_parts(index: int, size: int) -> list[Part]:
    """Return the subtrees whose root hashes are the inclusion proof of leaf `index` in a tree of
    `size` leaves, from the leaf's sibling up to the child of the root: at most 63. Raises
    `ValueError` unless `0 <= index < size <= MAX_SIZE`."""
    if not 0 <= index < size <= MAX_SIZE:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    found = []
    first, end = 0, size
    # From the root down to the leaf, by RFC 9162's recursion; each step leaves one half behind.
    while end - first > 1:
        middle = first + split(end - first)
        if index < middle:
            found.append(Part(middle, end))
            end = middle
        else:
            found.append(Part(first, middle))
            first = middle
    found.reverse()
    return found


def inclusion_proof(index: int, size: int, node: NodeReader) -> list[bytes]:
    """Return the inclusion proof for leaf `index` in the tree of `size` leaves. `node` gives the
    hashes of nodes, and may raise an error of its own. Raises `ValueError` as `inclusion_parts`
    does. Check the proof with `proves_inclusion` before anyone gets it: the stored nodes may be
    wrong."""
    return [part.root(node) for part in inclusion_parts(index, size)]


def proves_inclusion(
    leaf: bytes, index: int, size: int, hashes: Sequence[bytes], root: bytes
) -> bool:
    """Return whether `hashes` prove that the leaf hash `leaf` is leaf number `index` of the tree of
    `size` leaves with this root. Return False for anything that is not such a proof; never
    raises."""
    if not 0 <= index < size <= MAX_SIZE or any(len(each) != HASH for each in (leaf, *hashes)):
        return False
    # RFC 9162, 2.1.3.2. `place` is the current node's, `last` that of the rightmost node on its
    # level.
    place, last, hash_ = index, size - 1, leaf
    for each in hashes:
        if not last:
            return False  # longer than the path
        if place & 1 or place == last:
            hash_ = node_hash(each, hash_)
            # A right edge that is a lone left child has no sibling there, and so no hash.
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            hash_ = node_hash(hash_, each)
        place, last = place >> 1, last >> 1
    return not last and hash_ == root


def consistency_parts(old_size: int, new_size: int) -> list[Part]:
    """Return the subtrees whose root hashes are the consistency proof from a tree of `old_size`
    leaves to one of `new_size`, in the proof's order: at most 64, and none for equal sizes. Raises
    `ValueError` unless `0 < old_size <= new_size <= MAX_SIZE`: everything is consistent with an
    empty tree, so there is no proof from 0."""
    if not 0 < old_size <= new_size <= MAX_SIZE:
        raise ValueError(f"there is no consistency proof from size {old_size} to {new_size}")
    found = []
    first, end = 0, new_size
    # RFC 9162's SUBPROOF: down to the subtree that ends where the old tree does.
    while end != old_size:
        middle = first + split(end - first)
        if old_size <= middle:
            found.append(Part(middle, end))
            end = middle
        else:
            found.append(Part(first, middle))
            first = middle
    # The verifier knows that subtree's root only if it is the whole old tree.
    if first:
        found.append(Part(first, end))
    found.reverse()
    return found


def consistency_proof(old_size: int, new_size: int, node: NodeReader) -> list[bytes]:
    """Return the consistency proof from the tree of `old_size` leaves to that of `new_size`. `node`
    gives the hashes of nodes, and may raise an error of its own. Raises `ValueError` as
    `consistency_parts` does. Check the proof with `proves_consistency` before anyone gets it: the
    stored nodes may be wrong."""
    return [part.root(node) for part in consistency_parts(old_size, new_size)]


def proves_consistency(
    old_size: int, old_root: bytes, new_size: int, new_root: bytes, hashes: Sequence[bytes]
) -> bool:
    """Return whether `hashes` prove that the tree with `old_root` is the beginning of the tree with
    `new_root`. Return False for anything that is not such a proof, `old_size` 0 included; never
    raises."""
    if not 0 < old_size <= new_size <= MAX_SIZE:
        return False
    if any(len(each) != HASH for each in (old_root, new_root, *hashes)):
        return False
    if old_size == new_size:
        return not hashes and old_root == new_root
    # RFC 9162, 2.1.4.2. A complete old tree is itself the first node, and left out of the proof.
    path = list(hashes) if old_size & (old_size - 1) else [old_root, *hashes]
    if not path:
        return False
    place, last = old_size - 1, new_size - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = path[0]
    for each in path[1:]:
        if not last:
            return False  # longer than the path
        if place & 1 or place == last:
            old, new = node_hash(each, old), node_hash(each, new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            # Leaves to the right of the old tree are only in the new one.
            new = node_hash(new, each)
        place, last = place >> 1, last >> 1
    return not last and (old, new) == (old_root, new_root)


def proves_tail(
    tree: Frontier, last_leaf: bytes, size: int, root: bytes, hashes: Sequence[bytes]
) -> bool:
    """Return whether the log of `size` entries with this `root` begins with the entries of `tree`,
    whose last leaf hash is `last_leaf`. `hashes` is the inclusion proof of that leaf."""
    index = tree.size - 1
    if not proves_inclusion(last_leaf, index, size, hashes, root):
        return False
    # The proof's hashes on the left are the complete subtrees before the last leaf: the frontier
    # there, from the smallest to the largest. An inclusion proof alone would not say that the
    # file's own frontier is the same.
    lefts, place, last = [], index, size - 1
    for each in hashes:
        if place & 1 or place == last:
            lefts.append(each)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        place, last = place >> 1, last >> 1
    before = Frontier(index, lefts[::-1])
    before.append(last_leaf)
    return before == tree


_FIRST_LINE = "c2sp.org/tlog-proof@v1"
_EXTRA, _INDEX = "extra ", "index "
MAX_HASHES = 63
"""The most hashes that an inclusion proof can have, in the largest possible tree."""
MAX_EXTRA = 128 * 1024
"""The most bytes of extra data that a `TlogProof` may carry: twice the limit on an entry."""
# The base64 of all of it, and the lines' names and ends.
MAX_TEXT = MAX_NOTE + MAX_EXTRA * 2 + MAX_HASHES * 2 * HASH


class BadProof(ValueError):
    """the text is not a `tlog-proof`"""


@dataclass(frozen=True, slots=True)
class TlogProof:
    """An inclusion proof in the form that users keep: the number `index` of an entry, the hashes
    that prove it (32 bytes each), and the checkpoint's signed note. `extra` is free data that
    nothing authenticates; our logs put the entry's bytes there, whose leaf hash the proof then
    proves. Nothing is verified yet."""

    index: int
    hashes: tuple[bytes, ...]
    note: str
    extra: bytes | None = None

    def text(self) -> str:
        """Return the proof as text, in the form of C2SP `tlog-proof`."""
        extra = "" if self.extra is None else f"{_EXTRA}{b64(self.extra)}\n"
        hashes = "".join(f"{b64(each)}\n" for each in self.hashes)
        return f"{_FIRST_LINE}\n{extra}{_INDEX}{self.index}\n{hashes}\n{self.note}"

    @classmethod
    def parse(cls, text: str) -> "TlogProof":
        """Parse a proof in the form that `text` returns. Raises `BadProof` for any other spelling.
        The note is left as it is: `checkpoint.read` reads it."""
        if len(text) > MAX_TEXT:
            raise BadProof(f"the proof has more than {MAX_TEXT} characters")
        # The lines above contain no empty one, so the first one ends them.
        above, apart, note = text.partition("\n\n")
        first, *lines = above.split("\n")
        if first != _FIRST_LINE or not apart or not note:
            raise BadProof(
                f"not a proof: it does not begin with `{_FIRST_LINE}`, or has no checkpoint"
            )
        try:
            has_extra = lines[0].startswith(_EXTRA)
            extra = unb64(lines.pop(0).removeprefix(_EXTRA)) if has_extra else None
            index = int(lines.pop(0).removeprefix(_INDEX))
            hashes = tuple(map(unb64, lines))
        except (NotCanonical, ValueError, IndexError) as error:
            raise BadProof(f"the proof can't be read: {error}") from error
        proof = cls(index, hashes, note, extra)
        proof._check()
        # Other spellings, such as `index 05`, are other texts.
        if proof.text() != text:
            raise BadProof("the proof is not written in its one form")
        return proof

    def proves(self, leaf: bytes, size: int, root: bytes) -> bool:
        """Return whether the proof shows that leaf number `index` of the tree with this size and
        root has the leaf hash `leaf`. Take size and root from the note, once its signature is
        verified."""
        return proves_inclusion(leaf, self.index, size, self.hashes, root)

    def _check(self) -> None:
        if not 0 <= self.index < MAX_SIZE:
            raise BadProof("the proof's index is out of range")
        if len(self.hashes) > MAX_HASHES or any(len(each) != HASH for each in self.hashes):
            raise BadProof(f"the proof's hashes are not up to {MAX_HASHES} of {HASH} bytes")
        if self.extra is not None and len(self.extra) > MAX_EXTRA:
            raise BadProof(f"the proof's extra data has more than {MAX_EXTRA} bytes")
