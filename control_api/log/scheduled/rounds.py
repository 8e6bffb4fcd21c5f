"""Where the next step of a log's scheduled verification begins, and whether one is worth it.

A round is a walk over the whole log, from where it begins after purges. Between rounds, what is new
is verified. Knows the stored state of a log's verification; reads nothing.
"""

from dataclasses import replace

from control_api.log.scheduled.rederivation import stopped
from control_api.store.counters.dimensions import DAY
from control_api.store.queries.self_checks import SelfCheck
from policies.trail.merkle_tree import Frontier
from policies.trail.purge import Anchor

ROUND = DAY
"""A full round begins at most this often; entries that are new are verified within minutes."""
IDLE = 600_000_000
"""Microseconds after which a log without new entries is looked at again."""


def is_fresh(state: SelfCheck, size: int, now: int) -> bool:
    """Whether an idle log was verified lately: it is not worth another write."""
    return (
        not stopped(state)
        and state.finished_at is not None
        # Otherwise a round is under way.
        and state.size == state.finished_size == size
        and _within(state.finished_at, now, IDLE)
        and _within(state.started_at, now, ROUND)
    )


def _within(time: int, now: int, most: int) -> bool:
    """Whether `time` was at most so long ago. One that is yet to come, by more than clocks differ,
    was set by a clock that ran ahead, or by hand: a log would not be verified until then."""
    return -IDLE < now - time < most


def tree_of(state: SelfCheck) -> Frontier:
    """The tree as far as the walk has come. Raises `ValueError` or `TypeError` if the stored state
    was changed to be none."""
    return Frontier.from_bytes(state.size, state.frontier)


def due_state(
    before: SelfCheck, anchor: Anchor | None, size: int, now: int, lost: bool
) -> SelfCheck:
    """Where the next step begins: after a purge, and once a round is due, at the anchor. A round is
    due a day after the one before, or if nodes of the tree are `lost`."""
    first, frontier, leaf = 0, b"", b""
    if anchor is not None:
        first, frontier, leaf = anchor.purged.size, anchor.purged.frontier, anchor.purged.last_leaf
    old = lost or not _within(before.started_at, now, ROUND)
    # Not only where nothing is new: a busy log would have no second round.
    ended = before.size >= size or before.size == before.finished_size
    due = ended and not stopped(before) and old
    try:
        tree_of(before)
        readable = True
    except (ValueError, TypeError):
        readable = False  # it was changed by hand: nothing of it is trusted
    if readable and not due and first <= before.size <= size:
        return before
    return replace(before, size=first, frontier=frontier, last_leaf=leaf, started_at=now)
