"""The files on which both verifiers must agree, by number: the same number gives the same file."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.second_verifier import damage
from tests.second_verifier.drafts import draw, end_line

GOOD = 5
"""One file in so many is left as it is."""


class Sample(NamedTuple):
    """An export file, what was done to it, and what its reader pins."""

    raw: bytes
    done: str
    keys: list[str]
    witnesses: list[str]


def sample(number: int) -> Sample:
    """The file of that number."""
    random = Random(number)
    draft = draw(random)
    keys = draft.pinned() if random.random() < 0.8 else []
    witnesses = draft.witness_keys() if keys else []
    ways = len(damage.REWRITES) + len(damage.EDITS) + 1
    way = (number // GOOD * (GOOD - 1) + number % GOOD - 1) % ways
    if number % GOOD == 0 or draft.start == draft.stop:
        return Sample(finished(draft.lines()), "nothing", keys, witnesses)
    if way < len(damage.REWRITES):
        rewrite = damage.REWRITES[way]
        rewrite(draft, random)
        return Sample(finished(draft.lines()), rewrite.__name__, keys, witnesses)
    lines, way = draft.lines(), way - len(damage.REWRITES)
    if way < len(damage.EDITS):
        edit = damage.EDITS[way]
        edit(lines, random)
        return Sample(finished(lines), edit.__name__, keys, witnesses)
    raw = damage.change_bytes(finished(lines), random)
    return Sample(raw, damage.change_bytes.__name__, keys, witnesses)


def finished(lines: list[bytes]) -> bytes:
    """The file of these lines, with a last line that fits them."""
    return b"".join(line + b"\n" for line in [*lines, end_line(lines)])
