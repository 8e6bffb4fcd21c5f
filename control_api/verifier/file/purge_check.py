"""Holds the `purge` entries of a file against themselves, against the tree before the file, and
against what its header says of the oldest entry. Knows nothing of the database's anchors."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from policies.ground.canonical import b64, micros, unb64
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import KIND


class PurgeSeen(NamedTuple):
    """A `purge` entry of the file, or one that it brings along. `covered` says that a checkpoint by
    a trusted key covers it."""

    seq: int
    pub: dict[str, Any]
    covered: bool


class FileStart(NamedTuple):
    """How a file begins: behind the tree `base`, with an entry that cites `first_prev`. `oldest` is
    the first entry that the log still had."""

    base: Frontier
    first_prev: str
    oldest: int


def seen(notable: Iterable[tuple[int, str, dict[str, Any]]], covered: int) -> list[PurgeSeen]:
    """The `purge` entries among `notable`, each `(seq, kind, pub)`, of a file whose first `covered`
    entries a checkpoint by a trusted key covers."""
    return [PurgeSeen(seq, pub, seq < covered) for seq, kind, pub in notable if kind == KIND]


def purged_before(purges: Iterable[PurgeSeen], oldest: int) -> int:
    """The time before which what precedes the entry `oldest` was recorded, in microseconds; 0 if no
    `purge` entry that is covered says so."""
    times = [0]
    for each in purges:
        if each.covered and oldest and each.pub.get("size") == oldest:
            with suppress(ValueError, TypeError, LookupError):
                times.append(micros(each.pub["cutoff"]))
    return max(times)


def purge_findings(
    purges: Sequence[PurgeSeen], start: FileStart, *, signed: bool
) -> Iterator[Finding]:
    """What is wrong with the `purge` entries, or missing of them. `signed` says that some
    checkpoint of the file is by a trusted key."""
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


def _uncovered(purges: Sequence[PurgeSeen], start: FileStart, *, signed: bool) -> str | None:
    """Why nothing shows that retention removed what precedes the oldest entry."""
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
    """Why a purge of just what precedes the file does not fit the file's beginning."""
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
