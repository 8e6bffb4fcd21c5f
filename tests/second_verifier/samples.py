"""The files on which both verifiers must agree, by number: the same number gives the same file."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tests.second_verifier import edits, rewrites
from tests.second_verifier.drafts import Draft, finished
from tests.second_verifier.drawing import draw

GOOD = 5
"""One file in so many is left as it is."""
TWICE = 0.2
"""The share of damaged files that are damaged in two ways: the first finding is told then."""


def _erased_behind(draft: Draft) -> bool:
    behind = draft.entries[draft.stop :]
    return draft.with_openings and any(entry["kind"] == "redact" for entry in behind)


def _purged_elsewhere(draft: Draft) -> bool:
    outside = (*draft.entries[: draft.start], *draft.entries[draft.stop :])
    return draft.kept > 0 and any(entry["kind"] == "purge" for entry in outside)


WAYS: tuple[Any, ...] = (*rewrites.REWRITES, *edits.EDITS, edits.change_bytes)
NEEDS: dict[str, Callable[[Draft], object]] = {
    "erase_without_an_excuse": lambda draft: _has(draft, "redact"),
    "misstate_a_purge": lambda draft: draft.start == draft.kept > 0 and _has(draft, "purge"),
    "forge_the_frontier": lambda draft: draft.start,
    "change_a_rejected_record": lambda draft: _has(draft, "rejected_record"),
    "misname_an_origin": lambda draft: draft.checkpoints,
    "change_a_document": lambda draft: draft.documents,
    "damage_a_document_line": lambda draft: draft.documents,
    "delete_the_erasures": _erased_behind,
    "change_an_erasure": _erased_behind,
    "delete_the_purge": _purged_elsewhere,
    "change_the_purge": _purged_elsewhere,
    "deny_a_source_its_beginning": lambda draft: draft.start,
}
"""What a log must have for a damage to have an effect."""


class Sample(NamedTuple):
    """An export file, what was done to it, and what its reader pins."""

    raw: bytes
    done: str
    keys: list[str]
    witnesses: list[str]


def sample(number: int) -> Sample:
    """The file of that number."""
    random = Random(number)
    way = WAYS[(number // GOOD * (GOOD - 1) + number % GOOD - 1) % len(WAYS)]
    good = number % GOOD == 0
    draft = draw(random)
    while not good and not (draft.start < draft.stop and _suits(draft, way.__name__)):
        draft = draw(random)
    keys = draft.pinned() if random.random() < 0.8 else []
    witnesses = draft.witness_keys() if keys else []
    if good:
        return Sample(finished(draft.lines()), "nothing", keys, witnesses)
    raw, done = _damaged(draft, way, random)
    return Sample(raw, done, keys, witnesses)


def _damaged(draft: Draft, way: Any, random: Random) -> tuple[bytes, str]:
    """The file's bytes after the damage, and its name."""
    done = way.__name__
    if way in rewrites.REWRITES:
        way(draft, random)
    more = random.random() < TWICE
    if more and way not in rewrites.REWRITES:
        second = random.choice(rewrites.REWRITES)
        second(draft, random)
        done = f"{second.__name__}, {done}"
    lines, empty = draft.lines(), draft.start >= draft.stop
    if way in edits.EDITS and not empty:
        way(lines, random)
    elif more and way in rewrites.REWRITES and not empty:
        edit = random.choice(edits.EDITS)
        edit(lines, random)
        done = f"{done}, {edit.__name__}"
    raw = finished(lines)
    return (edits.change_bytes(raw, random) if way is edits.change_bytes else raw), done


def _suits(draft: Draft, way: str) -> bool:
    return way not in NEEDS or bool(NEEDS[way](draft))


def _has(draft: Draft, kind: str) -> bool:
    return any(entry["kind"] == kind for entry in draft.entries[draft.start : draft.stop])
