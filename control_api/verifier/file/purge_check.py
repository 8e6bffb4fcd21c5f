"""Holds the `purge` entries of a file against themselves and against the tree before the file.
Knows nothing of the database's anchors."""

from collections.abc import Iterable, Iterator
from typing import Any

from policies.ground.canonical import b64, unb64
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import KIND


def purge_findings(
    notable: Iterable[tuple[int, str, dict[str, Any]]], base: Frontier, first_prev: str
) -> Iterator[Finding]:
    """What is wrong with the `purge` entries among `notable`, each `(seq, kind, pub)`. `base` is
    the tree before the file's first entry, which cites `first_prev`."""
    before = [b64(each) for each in base.hashes]
    for seq, kind, pub in notable:
        if kind != KIND:
            continue
        fault = _fault(pub, seq)
        if fault is None and pub["size"] == base.size > 0:
            fault = _misfit(pub, before, first_prev)
        if fault is not None:
            yield Finding(seq, Reason.PURGE_MISMATCH, f"seq {seq}: {fault}")


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
