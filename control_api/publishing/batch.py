"""Batches the writes to a policy set. A small change is written in one step, together with the
head. A large one is written in pieces under a lock, with the head last. Knows sizes, not
contents."""

from collections.abc import Callable

from control_api.publishing.redis_sets import RedisSets

PIECE_FIELDS = 500
PIECE_BYTES = 1024 * 1024
ONE_STEP = 4
"""Pieces that one step may write. It takes Redis a few milliseconds, in which it serves no other
client."""


class SetChanged(Exception):
    """another replica has changed the set since it was read"""


class SetLocked(SetChanged):
    """another replica is rebuilding the set"""


class Batches:
    """Writes to one tenant's set, provided that it is still at `at`. `fields` holds what has not
    been written yet. `token` is the token of the lock if the caller holds it, or ''."""

    def __init__(
        self,
        sets: RedisSets,
        tenant_id: str,
        at: bytes | None,
        new_token: Callable[[], str],
        token: str,
    ) -> None:
        self.fields: dict[bytes, bytes | None] = {}
        self._token = token
        self._locked_here = False
        self._sets = sets
        self._tenant_id = tenant_id
        self._at = at
        self._new_token = new_token
        self._bytes = 0

    async def add(self, field: bytes, body: bytes | None) -> None:
        """Write a field, now or together with later ones. Raises `SetChanged`."""
        self.fields[field] = body
        self._bytes += len(field) + len(body or b"")
        # Without a lock, everything may still fit into one step, which readers see as one change.
        # Under a lock readers wait for the new head anyway, so send small pieces, which keep Redis
        # responsive.
        pieces = 1 if self._token else ONE_STEP
        if not _over(len(self.fields), self._bytes, pieces):
            return
        if not self._token:
            token = self._new_token()
            if not await self._sets.lock(self._tenant_id, token):
                raise SetLocked
            self._token, self._locked_here = token, True
        await self._send()

    async def finish(self, at: bytes, head: bytes) -> None:
        """Write the remaining fields and the new head, if any. Raises `SetChanged`."""
        await self._send(at, head)

    async def close(self) -> None:
        """Release the lock if it was taken here."""
        if self._locked_here:
            await self._sets.unlock(self._tenant_id, self._token)

    async def _send(self, at: bytes = b"", head: bytes = b"") -> None:
        fields, self.fields, self._bytes = self.fields, {}, 0
        # Each piece checks `at` and the token again. If we die between two pieces, the lock
        # expires, and the next reconciliation finds the missing nodes.
        if not await self._sets.move(
            self._tenant_id, self._at, fields, at=at, head=head, token=self._token
        ):
            raise SetChanged


def _over(fields: int, size: int, pieces: int) -> bool:
    return fields > pieces * PIECE_FIELDS or size > pieces * PIECE_BYTES


def one_step(fields: dict[bytes, bytes | None]) -> bool:
    """Whether all of these fields may go in a single step."""
    size = sum(len(field) + len(body or b"") for field, body in fields.items())
    return not _over(len(fields), size, ONE_STEP)
