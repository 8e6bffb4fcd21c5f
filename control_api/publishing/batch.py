"""What a set is to be told, gathered: up to so much of it in one step with the head, more than that
in pieces before it, under a lock. Knows sizes, and nothing of what they hold."""

from collections.abc import Callable

from control_api.publishing.redis_sets import RedisSets

PIECE_FIELDS = 500
PIECE_BYTES = 1024 * 1024
ONE_STEP = 4
"""Pieces that Redis takes at once: a few milliseconds in which it answers nobody else."""


class SetChanged(Exception):
    """the set is not any more what was read of it: another replica was faster"""


class Busy(SetChanged):
    """another replica is rebuilding the set"""


class Batches:
    """Of one tenant, on top of the set as it stood `at`. `fields` are those not yet in Redis;
    `token` is that of the lock that its caller holds, or ''."""

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
        self._ours = False
        self._sets = sets
        self._tenant_id = tenant_id
        self._at = at
        self._new_token = new_token
        self._bytes = 0

    async def add(self, field: bytes, body: bytes | None) -> None:
        """`SetChanged` where what was read of the set is old."""
        self.fields[field] = body
        self._bytes += len(field) + len(body or b"")
        pieces = 1 if self._token else ONE_STEP
        if not _over(len(self.fields), self._bytes, pieces):
            return
        if not self._token:
            token = self._new_token()
            if not await self._sets.lock(self._tenant_id, token):
                raise Busy
            self._token, self._ours = token, True
        await self._send()

    async def finish(self, at: bytes, head: bytes) -> None:
        """The rest, and the new head where there is one. `SetChanged` as above."""
        await self._send(at, head)

    async def close(self) -> None:
        """Give back the lock that was taken here."""
        if self._ours:
            await self._sets.unlock(self._tenant_id, self._token)

    async def _send(self, at: bytes = b"", head: bytes = b"") -> None:
        fields, self.fields, self._bytes = self.fields, {}, 0
        if not await self._sets.move(
            self._tenant_id, self._at, fields, at=at, head=head, token=self._token
        ):
            raise SetChanged


def _over(fields: int, size: int, pieces: int) -> bool:
    return fields > pieces * PIECE_FIELDS or size > pieces * PIECE_BYTES


def one_step(fields: dict[bytes, bytes | None]) -> bool:
    """Whether Redis may be told all of it at once."""
    size = sum(len(field) + len(body or b"") for field, body in fields.items())
    return not _over(len(fields), size, ONE_STEP)
