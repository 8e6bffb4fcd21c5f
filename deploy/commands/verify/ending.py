"""Judges the lines after the last entry of an export file, and the file's `purge` entries, which
record what retention removed.

After the last entry stand the proof of that entry, `redact` entries that erased openings of entries
in the file, and the line that ends the file.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from deploy.commands.verify.source import LineChunks
from policies.ground.canonical import b64, micros, unb64
from policies.trail.checkpoint import Checkpoint
from policies.trail.entry import EntryFinding, check_entry
from policies.trail.findings import Finding, Reason
from policies.trail.log_file.lines import (
    MAX_LINE,
    CheckpointLine,
    EndLine,
    ErasureLine,
    Line,
    ProofLine,
    PurgeLine,
)
from policies.trail.merkle_tree import Frontier, leaf_hash
from policies.trail.proofs import tree_proofs
from policies.trail.removal import PURGE
from policies.trail.walk.gaps import REDACT, Erasures, erased_ranges
from policies.trail.walk.joined_walk import JoinedWalk


class PurgeEntry(NamedTuple):
    """A `purge` entry: one of the file's own entries, or one that the file includes from a later
    part of the log. `covered` is True if a checkpoint by a trusted key covers it."""

    seq: int
    pub: dict[str, Any]
    covered: bool


class FileStart(NamedTuple):
    """The beginning of a file. `base` is the Merkle tree of the entries before its first one, and
    `first_prev` the hash that the first entry states for its predecessor. `oldest` is the number of
    the oldest entry that the log still had."""

    base: Frontier
    first_prev: str
    oldest: int


def purge_entries(
    notable: Iterable[tuple[int, str, dict[str, Any]]], covered: int
) -> list[PurgeEntry]:
    """Return the `purge` entries among `notable`, which are tuples of `seq`, `kind` and `pub`. A
    checkpoint by a trusted key covers the entries before number `covered`."""
    return [PurgeEntry(seq, pub, seq < covered) for seq, kind, pub in notable if kind == PURGE]


def purged_before(purges: Iterable[PurgeEntry], oldest: int) -> int:
    """Return the time (microseconds since 1970 UTC) before which retention removed entries, if a
    `purge` entry states it: all entries before number `oldest` were recorded before that time.
    Returns 0 if no covered `purge` entry does."""
    times = [0]
    for each in purges:
        if each.covered and oldest and each.pub.get("size") == oldest:
            with suppress(ValueError, TypeError, LookupError):
                times.append(micros(each.pub["cutoff"]))
    return max(times)


def purge_findings(
    purges: Sequence[PurgeEntry], start: FileStart, *, signed: bool
) -> Iterator[Finding]:
    """Yield a finding for each fault of a `purge` entry, and one if entries were removed and no
    `purge` entry shows it. `signed` says that some checkpoint of the file is signed by a trusted
    key."""
    before = [b64(each) for each in start.base.hashes]
    for purge in purges:
        fault = _fault(purge.pub, purge.seq)
        if fault is None and purge.pub["size"] == start.base.size > 0:
            fault = _misfit(purge.pub, before, start.first_prev)
        if fault is not None:
            message = f"seq {purge.seq}: {fault}"
            yield Finding(purge.seq, Reason.PURGE_MISMATCH, message)
    if start.oldest and (missing := _uncovered(purges, start, signed=signed)):
        seq = start.base.size
        message = f"seq {seq}: the entries before {start.oldest} are gone, and {missing}"
        yield Finding(seq, Reason.PURGE_UNCOVERED, message)


def _uncovered(purges: Sequence[PurgeEntry], start: FileStart, *, signed: bool) -> str | None:
    """Return the reason why no evidence shows that retention removed the entries before the oldest
    one; None if there is such evidence, or if this file need not hold it."""
    those = [each for each in purges if each.pub.get("size") == start.oldest]
    if not those:
        why = "no `purge` entry shows that retention removed them"
        if start.base.size > start.oldest:
            why += "; if an earlier version exported this part, without that entry, export it again"
        return why
    # A part from further on says nothing of the beginning; without a trusted checkpoint, nothing
    # in it is proven, and the level says so.
    if any(each.covered for each in those) or not (signed or start.base.size == start.oldest):
        return None
    return "no checkpoint by a trusted key covers the `purge` entry that says so"


def _misfit(pub: dict[str, Any], before: list[str], first_prev: str) -> str | None:
    """Return the reason why a purge of exactly the entries before the file contradicts the file's
    beginning; None if it does not."""
    if pub["frontier"] != before:
        return "the purge says another frontier than the file begins with"
    if pub.get("last") != first_prev:
        return "the purge says another last entry than the file's first one follows"
    return None


def _fault(pub: dict[str, Any], seq: int) -> str | None:
    size, frontier = pub.get("size"), pub.get("frontier")
    if type(size) is not int or not isinstance(frontier, list) or not 0 <= size <= seq:
        return "the purge does not say what it removed"
    if size == 0:
        return None
    try:
        tree = Frontier.from_bytes(size, b"".join(_hash(each) for each in frontier))
    except (ValueError, TypeError) as error:
        return f"the purge's frontier can't be read: {error}"
    if b64(tree.root()) != pub.get("root"):
        return "the purge's frontier does not give its root"
    return None


def _hash(text: Any) -> bytes:
    raw = unb64(text)
    if len(raw) != 32:
        raise ValueError("a hash of another length")
    return raw


_VERSION = b',"v":1}'


class EndingJudge:
    """Judges the lines after the last entry of a file. `log` is the log's name, and `until` is one
    more than the number of the last entry."""

    def __init__(self, log: str, until: int) -> None:
        self._log = log
        self._last = until - 1
        self._at: int | None = None
        self._in_order = True
        self.proof: ProofLine | None = None
        """The proof of the last entry, until the checkpoint that follows it has been read."""
        self.proven: Checkpoint | None = None
        """The checkpoint of the larger log, once the proof has shown that the file's entries are
        part of that log."""
        self.latest: Checkpoint | None = None
        """The last checkpoint in the file whose root hash the file's entries confirm."""
        self.purges: list[PurgeEntry] = []
        """The `purge` entry that the file includes from a later part of the log, if there is
        one."""
        self.erased = 0
        """The number of the file's entries whose openings are missing because of the erasures after
        the last entry."""
        self.unproven = 0
        """The number of entries among `erased` whose erasure no trusted checkpoint covers."""

    def misplaced(self, line: Line, size: int) -> str | None:
        """Return the reason why a line may not stand after `size` entries of the log; None if it
        may."""
        if self._at not in (None, size):
            # It would seem to be proven by the proof before it.
            return "an entry stands behind the proof of the last entry, or behind an erasure"
        if self.proof is not None and not isinstance(line, CheckpointLine):
            return "no checkpoint follows the proof of the last entry"
        if isinstance(line, PurgeLine):
            return None if self._in_order else "a `purge` entry stands behind what follows it"
        if self._at is None or self.proof is not None or isinstance(line, ErasureLine | EndLine):
            return None
        return "a line stands behind the proof of the last entry, or behind an erasure"

    def begin(self, proof: ProofLine, size: int) -> None:
        """Take in the proof of the last entry; `size` is that entry's number plus 1."""
        self.proof, self._at = proof, size

    def take(
        self, line: ErasureLine, size: int, erasures: Erasures, *, trusted: bool
    ) -> Finding | None:
        """Take in an erasure: a `redact` entry, which excuses the openings that are missing from
        its entries. `trusted` says that a trusted key signed the checkpoint of the larger log.
        Returns a finding if the line is invalid."""
        self._at, self._in_order, raw = size, False, line.entry.encode()
        entry = self._entry(raw, REDACT)
        if isinstance(entry, Finding):
            return entry
        if line.proof is not None and not _proves(raw, entry["seq"], line.proof, self.proven):
            message = f"the erasure of seq {entry['seq']} is not in the log of the last checkpoint"
            return Finding(None, Reason.ROOT_MISMATCH, message)
        self._last = entry["seq"]
        before = erasures.excused
        for first, last in erased_ranges(entry):
            erasures.redact(first, last)
        self.erased += erasures.excused - before
        if line.proof is None or not trusted:
            self.unproven += erasures.excused - before
        return None

    def take_purge(self, line: PurgeLine, size: int, *, trusted: bool) -> Finding | None:
        """Take in the line with a `purge` entry. `trusted` says that a trusted key signed the last
        checkpoint. Returns a finding if the line is invalid."""
        self._at, self._in_order, raw = size, False, line.entry.encode()
        entry = self._entry(raw, PURGE)
        if isinstance(entry, Finding):
            return entry
        proven = line.proof is not None
        if line.proof is not None and not _proves(raw, entry["seq"], line.proof, self.latest):
            message = f"the purge of seq {entry['seq']} is not in the log of the last checkpoint"
            return Finding(None, Reason.ROOT_MISMATCH, message)
        self.purges = [PurgeEntry(entry["seq"], entry["pub"], covered=proven and trusted)]
        return None

    def _entry(self, raw: bytes, kind: str) -> dict[str, Any] | Finding:
        """Return the decoded entry of a line; a finding if it is not an entry of `kind`, of this
        log and at a place after the entries before it."""
        try:
            entry: dict[str, Any] = orjson.loads(raw)
            check_entry(raw, entry)
            # A part may begin behind the `purge` entry, but its erasures are behind its end.
            seq, last = entry["seq"], self._last if kind == REDACT else -1
            fits = type(seq) is int and seq > last and entry["kind"] == kind
            same = entry["log"] == self._log and raw.endswith(_VERSION)
            if fits and same and type(entry["prev"]) is str:
                return entry
            wrong = f"is not a `{kind}` entry of this log in its place"
        except (EntryFinding, ValueError, TypeError, LookupError, AttributeError) as error:
            wrong = f"can't be read: {error!s:.200}"
        return Finding(None, Reason.FILE_MALFORMED, f"a line behind the last entry {wrong}")


def _proves(raw: bytes, seq: int, hashes: list[bytes], covered: Checkpoint | None) -> bool:
    if covered is None:
        return False
    return tree_proofs.proves_inclusion(leaf_hash(raw), seq, covered.size, hashes, covered.root)


def end_fault(
    chunks: LineChunks, ended: EndLine | None, walk: JoinedWalk, until: int
) -> Finding | None:
    """Return a finding if the file does not end as it must; None if it does. `ended` is the line
    that ends the file, None if it is missing, and `walk` has taken in all entries. An export must
    hold all entries before number `until`."""
    if chunks.fault is not None and not chunks.fault.truncated:
        return Finding(None, Reason.FILE_MALFORMED, str(chunks.fault))
    if len(chunks.rest) > MAX_LINE:
        long = f"line {chunks.lines + 1} is longer than {MAX_LINE} bytes"
        return Finding(None, Reason.FILE_MALFORMED, long)
    if ended is None or chunks.rest or chunks.fault is not None:
        why = "without its last line" if chunks.fault is None else f"early: {chunks.fault}"
        message = f"the file ends {why}, after {walk.walked()} whole entries"
        return Finding(None, Reason.FILE_TRUNCATED, message)
    if ended.entries != walk.walked():
        message = f"the last line counts {ended.entries} entries, the file has {walk.walked()}"
        return Finding(None, Reason.FILE_MALFORMED, message)
    if ended.sha256 != chunks.hexdigest():
        message = "the file's SHA-256 is not the one in its last line"
        return Finding(None, Reason.FILE_DIGEST_MISMATCH, message)
    if walk.tree.size != until:
        message = f"the file ends at {walk.tree.size}, not at {until} as its header says"
        return Finding(None, Reason.FILE_MALFORMED, message)
    return None
