"""The text form of an inclusion proof (C2SP `tlog-proof`): all that is needed to check, without the
service, that an entry is in a log, except the entry and the keys.

    c2sp.org/tlog-proof@v1\\n[extra <base64>\\n]index <index>\\n<base64 hash>\\n…\\n<checkpoint>

Knows the text. `inclusion` knows the hashes, `policies.trail.checkpoint` the note.
"""

from dataclasses import dataclass

from policies.ground.canonical import NotCanonical, b64, unb64
from policies.trail.proofs import inclusion
from policies.trail.proofs.signed_note import MAX_NOTE
from policies.trail.proofs.subtree import HASH, MAX_SIZE

_FIRST = "c2sp.org/tlog-proof@v1"
_EXTRA, _INDEX = "extra ", "index "
MAX_HASHES = 63
"""Hashes of a proof in the largest possible tree."""
MAX_EXTRA = 128 * 1024
"""Bytes of the extra data: an entry, twice over."""
# The base64 of all of it, and the lines' names and ends.
MAX_TEXT = MAX_NOTE + MAX_EXTRA * 2 + MAX_HASHES * 2 * HASH


class BadProof(ValueError):
    """the text is not a `tlog-proof`"""


@dataclass(frozen=True, slots=True)
class TlogProof:
    """The entry number `index`, the hashes that prove it (32 bytes each), and the checkpoint's
    note. `extra` is authenticated by nothing; a log of ours puts the entry's bytes there, whose
    leaf hash the proof then proves. Nothing is verified."""

    index: int
    hashes: tuple[bytes, ...]
    note: str
    extra: bytes | None = None

    def text(self) -> str:
        """The proof as text."""
        extra = "" if self.extra is None else f"{_EXTRA}{b64(self.extra)}\n"
        hashes = "".join(f"{b64(each)}\n" for each in self.hashes)
        return f"{_FIRST}\n{extra}{_INDEX}{self.index}\n{hashes}\n{self.note}"

    @classmethod
    def parse(cls, text: str) -> "TlogProof":
        """The inverse of `text`. Raises `BadProof` for any other spelling. The note is left as it
        is: `checkpoint.read` reads it."""
        if len(text) > MAX_TEXT:
            raise BadProof(f"the proof has more than {MAX_TEXT} characters")
        # The lines above contain no empty one, so the first one ends them.
        above, apart, note = text.partition("\n\n")
        first, *lines = above.split("\n")
        if first != _FIRST or not apart or not note:
            raise BadProof(f"not a proof: it does not begin with `{_FIRST}`, or has no checkpoint")
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
        """Whether entry `index` of the tree of `size` and `root` has the leaf hash `leaf`. Take
        size and root from the note, once its signature is verified."""
        return inclusion.verify(leaf, self.index, size, self.hashes, root)

    def _check(self) -> None:
        if not 0 <= self.index < MAX_SIZE:
            raise BadProof("the proof's index is out of range")
        if len(self.hashes) > MAX_HASHES or any(len(each) != HASH for each in self.hashes):
            raise BadProof(f"the proof's hashes are not up to {MAX_HASHES} of {HASH} bytes")
        if self.extra is not None and len(self.extra) > MAX_EXTRA:
            raise BadProof(f"the proof's extra data has more than {MAX_EXTRA} bytes")
