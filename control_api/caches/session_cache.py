"""Caches the sessions that this process has seen claimed. Claims none itself.

A session's owner and `expires_at` never change (contract, section 3), so a cached row is as good as
the database's until the session is revoked.
"""

from collections.abc import Iterable

from control_api.store.queries.sessions import SessionRow
from policies.definitions.model import Session
from policies.sets.policy_set import SESSION

MAX_SESSIONS = 16_384


class SessionCache:
    """One tenant's sessions; the one cached first is evicted first. `changes` counts revocations: a
    row that was read before the latest one may be stale."""

    def __init__(self) -> None:
        self.changes = 0
        self._held: dict[str, SessionRow] = {}

    def at(self, session_id: str, now: int) -> Session | None:
        """The session's state at `now` (microseconds); None if it is not cached."""
        held = self._held.get(session_id)
        return None if held is None else held.at(now)

    def keep(self, row: SessionRow) -> None:
        # Dicts keep insertion order, so the first key is the oldest. Keeping the order of use would
        # cost a write on each read.
        while len(self._held) >= MAX_SESSIONS:
            self._held.pop(next(iter(self._held)))
        self._held[row.session_id] = row

    def revoked(self, documents: Iterable[str]) -> None:
        """Drop the sessions among these published documents: their state has changed."""
        for name in documents:
            if name.startswith(SESSION):
                # Counted even if the session is not cached: a read of its row may be under way.
                self.changes += 1
                self._held.pop(name.removeprefix(SESSION), None)

    def forget(self) -> None:
        """Drop every session, since any of them may have been revoked."""
        self.changes += 1
        self._held.clear()
