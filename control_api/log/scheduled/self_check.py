"""Takes one step of the scheduled verification of a log: continues where the step before ended.

    claim      the log's state, so that one replica at a time verifies it
    verify     the next entries, slowly, or from the start if a new round is due
    derive     the decisions among them again
    repair     the stored nodes of the tree over them
    save       how far it came; after a finding it stays before it, so that a repair is noticed

A decision that doesn't follow from its facts is a finding, but the walk goes on behind it: the log
around it verifies. The finding is reported until the walk passes that place again and finds it
repaired. The last record of each sidecar's chain is kept in memory only: after a restart, the first
record of each sidecar is accepted without comparing it in that round.

A round is a walk over the whole log, from where it begins after purges. Between rounds, what is new
is verified.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, select

from control_api.log.checks import AnchorCheck, read_anchor
from control_api.log.scan import LogRange, excuse_redacted, missing_openings, scan
from control_api.log.scheduled.asked_logs import LEASE, Lease
from control_api.log.scheduled.node_repair import NodeRepair, StepNodes
from control_api.log.scheduled.rederivation import Derivations, stopped
from control_api.store.counters.counters import DAY
from control_api.store.queries.leases import SelfCheck, self_checks
from control_api.store.schema.log import log_heads
from control_api.store.schema.statements import of_tenant
from control_api.store.store import Store
from policies.ground.canonical import rfc3339
from policies.trail.findings import Finding, Reason
from policies.trail.merkle_tree import Frontier
from policies.trail.recompute.recomputer import RecomputeCounts
from policies.trail.removal import Anchor, Purged
from policies.trail.verify import LogHead, Verifier

ROUND = DAY
"""The time (microseconds) between the starts of two full rounds, at least. New entries are verified
within minutes."""
IDLE = 600_000_000
"""Microseconds after which a log without new entries gets another step of verification."""


def is_fresh(state: SelfCheck, size: int, now: int) -> bool:
    """Return whether an idle log was verified so recently that another step is not worth a
    write."""
    return (
        not stopped(state)
        and state.finished_at is not None
        # Otherwise a round is under way.
        and state.size == state.finished_size == size
        and _within(state.finished_at, now, IDLE)
        and _within(state.started_at, now, ROUND)
    )


def _within(time: int, now: int, most: int) -> bool:
    """Return whether `time` was at most `most` microseconds ago. A time in the future, by more than
    clocks differ, does not count: it was set by a clock that ran ahead, or by hand, and the log
    would not be verified until then."""
    return -IDLE < now - time < most


def tree_of(state: SelfCheck) -> Frontier:
    """Return the tree as far as the walk has come. Raises `ValueError` or `TypeError` if somebody
    changed the stored state so that it is no valid tree."""
    return Frontier.from_bytes(state.size, state.frontier)


def due_state(
    before: SelfCheck, anchor: Anchor | None, size: int, now: int, lost: bool
) -> SelfCheck:
    """Return the state from which the next step begins. After a purge, and once a round is due,
    that is the anchor. A round is due a day after the one before, or if nodes of the tree are
    `lost`."""
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


ENTRIES = 20_000
"""The most entries of one step."""
PAUSE, REST = 0.01, 9.0
"""The time that other tasks get after each stretch: at least `PAUSE` seconds, and `REST` times the
stretch's CPU time. So the verification takes a tenth of one core, however slow that is."""
STRETCH = 25
"""Entries verified and derived without a pause, in one or two milliseconds."""
PAGE_ROWS = 250


@dataclass(frozen=True, slots=True)
class _Snapshot:
    log: str
    head: LogHead
    anchor: Anchor | None
    fault: Finding | None
    purge_fault: Finding | None


class SelfChecker:
    """Verifies the logs of one store. `publics` are the keys trusted to sign their notes. `count`
    is called with the numbers of how the decisions of each step ended; `rest` is the time that
    other tasks get, as a multiple of the CPU time of the verification."""

    def __init__(
        self,
        store: Store,
        count: Callable[[RecomputeCounts], object] | None = None,
        rest: float = REST,
    ) -> None:
        self._store = store
        self._count = count
        self._rest = rest
        self._walks: dict[str, Verifier] = {}
        self._derivations = Derivations(store, PAUSE)
        self._nodes = NodeRepair(store)

    async def step(
        self, tenant_id: str, publics: Collection[bytes]
    ) -> tuple[SelfCheck | None, bool]:
        """Take one step of a log's verification. Returns the state after it, and whether more
        entries wait. Nothing is done, and the state may be None, while another process verifies
        this log."""
        now = self._store.clock.now()
        async with self._store.reading(tenant_id) as connection:
            stored = await self_checks.state(connection, tenant_id)
            size = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
        if stored is not None and is_fresh(stored, 0 if size is None else size.size, now):
            return stored, False
        lease = Lease(self._store, self_checks, tenant_id, now + LEASE)
        async with lease.released():
            before = await lease.claim(SelfCheck(0, b"", b"", now), now)
            if before is None:
                async with self._store.reading(tenant_id) as connection:
                    return await self_checks.state(connection, tenant_id), False
            after, more = await self._verify(tenant_id, before, publics, now)
        # If we die before this, the entries are verified again once the lease has ended.
        await lease.end(after)
        return after, more

    async def _verify(
        self, tenant_id: str, before: SelfCheck, publics: Collection[bytes], now: int
    ) -> tuple[SelfCheck, bool]:
        snapshot = await self._snapshot(tenant_id)
        if snapshot is None:  # nothing was ever recorded
            done = replace(before, finished_at=now, finished_size=0, verified_at=now)
            return replace(done, leased_until=None), False
        check = AnchorCheck(snapshot.anchor, snapshot.log, publics)
        found = reported = check.fault or snapshot.fault
        newest = await self._nodes.newest(tenant_id, snapshot.log, publics)
        lost = await self._nodes.lost(tenant_id, check.first, newest)
        state = due_state(before, snapshot.anchor, snapshot.head.size, now, lost)
        if found is None:
            tree, until = tree_of(state), _until(state, snapshot.head)
            nodes = await self._nodes.begin(tenant_id, tree, until, newest, publics)
            found, reported, state = await self._advance(tenant_id, snapshot, check, state, nodes)
        if found is None:
            found = snapshot.purge_fault
            reported = found or reported
        if reported is not None:
            # A purge may have removed entries while they were read.
            now_there = await self._snapshot(tenant_id)
            if now_there is None or now_there.anchor != snapshot.anchor:
                self._derivations.forget(tenant_id)
                return replace(before, leased_until=None), False
        place, text = (None, None) if reported is None else (reported.place, reported.text())
        state = replace(state, broken_at=place, reason=text, leased_until=None)
        if found is not None:
            self._walks.pop(tenant_id, None)
            self._derivations.forget(tenant_id)
            return state, False
        if state.size < snapshot.head.size:
            return state, True
        done = replace(state, finished_at=now, finished_size=state.size)
        return replace(done, verified_at=state.started_at), False

    async def _advance(
        self,
        tenant_id: str,
        snapshot: _Snapshot,
        check: AnchorCheck,
        state: SelfCheck,
        nodes: StepNodes,
    ) -> tuple[Finding | None, Finding | None, SelfCheck]:
        """Verify the next entries. Returns the finding that stops the walk, the finding to report,
        and the state after the step."""
        cutoff = 0 if snapshot.anchor is None else snapshot.anchor.purged.cutoff
        derivation = await self._derivations.at(tenant_id, check.first, state.size, cutoff)
        verifier = self._verifier(tenant_id, snapshot, check, state)
        if nodes.reached is not None:
            verifier.expect(nodes.reached.size, nodes.reached.root)

        async def follow(rows: Sequence[Row[Any]]) -> None:
            nodes.follow(rows)
            await derivation.follow(rows)

        found, tree, leaf = await self._walk(tenant_id, snapshot, check, state, verifier, follow)
        if self._count is not None:
            self._count(derivation.take_counts())
        if found is not None:
            return found, found, state
        self._derivations.hold(tenant_id, derivation)
        await self._nodes.settle(tenant_id, nodes, tree)
        reported = await derivation.finding(state)
        after = replace(state, size=tree.size, frontier=tree.to_bytes(), last_leaf=leaf)
        return None, reported, after

    async def _walk(
        self,
        tenant_id: str,
        snapshot: _Snapshot,
        check: AnchorCheck,
        state: SelfCheck,
        verifier: Verifier,
        follow: Callable[[Sequence[Row[Any]]], Awaitable[None]],
    ) -> tuple[Finding | None, Frontier, bytes]:
        head, until = snapshot.head, _until(state, snapshot.head)
        part = LogRange(state.size, until, head.size, PAUSE, PAGE_ROWS, STRETCH, self._rest)
        found = await scan(self._store, tenant_id, verifier, part, check.check_rows, follow)
        tree, leaf, broken = verifier.reached()
        await excuse_redacted(self._store, tenant_id, verifier.erasures, until)
        found = found or broken or await missing_openings(self._store, tenant_id, verifier.erasures)
        if found is None and tree.size < until:
            gone = f"seq {tree.size}: missing, though the head counts {head.size} entries"
            found = Finding(tree.size, Reason.ENTRIES_MISSING, gone)
        same = (head.last_leaf, head.frontier) == (leaf, tree.to_bytes())
        if found is None and until == head.size and not same:
            other = f"seq {until}: the head is not that of the entries"
            found = Finding(until, Reason.HEAD_MISMATCH, other)
        self._walks[tenant_id] = verifier
        return found, tree, leaf

    def _verifier(
        self, tenant_id: str, snapshot: _Snapshot, check: AnchorCheck, state: SelfCheck
    ) -> Verifier:
        """Return the verifier of the step before, if this process has it in memory, or else a new
        one that starts where that step ended."""
        held = self._walks.pop(tenant_id, None)
        if held is not None and held.reached()[:2] == (tree_of(state), state.last_leaf):
            return held
        if state.size == check.first:
            return check.verifier()
        root = tree_of(state).root()
        until_here = Purged(state.size, root, state.frontier, state.last_leaf, 0, state.size)
        return Verifier(snapshot.log, after=until_here)

    async def _snapshot(self, tenant_id: str) -> _Snapshot | None:
        async with self._store.reading(tenant_id) as connection:
            anchor, fault, other = await read_anchor(connection, tenant_id)
            row = (await connection.execute(_HEAD, {"tenant": tenant_id})).one_or_none()
        if row is None:
            return None
        last_ts = rfc3339(row.last_ts) if row.last_ts else ""
        head = LogHead(row.size, row.last_leaf, last_ts, row.frontier)
        return _Snapshot(row.log, head, anchor, fault, other)


def _until(state: SelfCheck, head: LogHead) -> int:
    return min(head.size, state.size + ENTRIES)


_HEAD = select(log_heads).where(of_tenant(log_heads))
