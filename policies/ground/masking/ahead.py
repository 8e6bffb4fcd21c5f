"""Masks long texts ahead of their record, in steps between which an event loop can serve others.

    masked = await …                all steps of `mask_ahead(text)`, with turns of the loop between
    with prepared({text: masked}):
        decision_record(…)          finds the masked text

A decision and its record are made in one turn of the loop, so that the policy set can't change in
between. What it costs to mask a stranger's text must not be part of that turn.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from policies.ground.masking.masked import Masked

LONGEST_AT_ONCE = 256
"""Up to this many characters are masked at once: the worst text takes some 2 ms."""

LONGEST_UNPREPARED = 4096
"""A longer text that was not masked ahead is masked whole: reading it could take 50 ms."""

UNREAD = "UNREAD"
"""The label of a text that was masked whole without being read."""

_prepared: ContextVar[Mapping[str, Masked]] = ContextVar("masked ahead")


def mask_ahead(text: str, context: str = "") -> Generator[None, None, Masked]:
    """Masks `text` like `masked_text`, and pauses after each candidate."""
    from policies.ground.masking.mask import mask_steps

    return (yield from mask_steps(text, context))


def mask_json_ahead(value: Any) -> Generator[None, None, tuple[Any, tuple[str, ...]]]:
    """Masks `value` like `masked_json`, and pauses after each candidate."""
    from policies.ground.masking.tree import tree_steps

    return (yield from tree_steps(value))


@contextmanager
def prepared(masked: Mapping[str, Masked]) -> Iterator[None]:
    """Within this block, `masked_or_unread` finds these texts masked already. The block must not
    wait for anything."""
    token = _prepared.set(masked)
    try:
        yield
    finally:
        _prepared.reset(token)


def masked_or_unread(text: str) -> Masked:
    """The masked text. One that is too long to be masked now, and was not masked ahead, becomes
    `[UNREAD]`."""
    if len(text) > LONGEST_AT_ONCE:
        known = _prepared.get({}).get(text)
        if known is not None:
            return known
        if len(text) > LONGEST_UNPREPARED:
            return Masked(f"[{UNREAD}]", (UNREAD,))
    from policies.ground.masking.mask import mask

    return mask(text)
