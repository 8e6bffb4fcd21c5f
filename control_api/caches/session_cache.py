"""Sessions that this process has seen claimed. Knows owner and end; claims none itself.

The owner and `expires_at` of a session are fixed from its creation (contract, section 3), so a copy
is as good as the row until it is revoked.
"""

from collections.abc import Iterable

from control_api.store.queries.sessions import SessionRow
from policies.definitions.model import Session
from policies.sets.policy_set import SESSION

KEEP = 16_384


class SessionCache:
    """The sessions of one tenant; the one that was claimed longest ago goes first. `changes` counts
    what was heard of revocations: a row that was read before one may say what was before."""

    def __init__(self) -> None:
        self.changes = 0
        self._held: dict[str, SessionRow] = {}

    def at(self, session_id: str, now: int) -> Session | None:
        """The session as it stands at `now` (microseconds), None where it was not seen here."""
        held = self._held.get(session_id)
        return None if held is None else held.at(now)

    def keep(self, row: SessionRow) -> None:
        while len(self._held) >= KEEP:
            self._held.pop(next(iter(self._held)))
        self._held[row.session_id] = row

    def revoked(self, documents: Iterable[str]) -> None:
        """Sessions of which such a document was published: the store knows more than we do."""
        for name in documents:
            if name.startswith(SESSION):
                self.changes += 1
                self._held.pop(name.removeprefix(SESSION), None)

    def forget(self) -> None:
        """Any of them may have been revoked."""
        self.changes += 1
        self._held.clear()
