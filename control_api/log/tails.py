"""The open tails of this process: the connections of everyone who watches a log grow.

    reader     one for a tenant, while it has a tail: looks every second whether its log has
               grown, by this process, another worker or another replica
    group      the tails with the same filters: what is new is matched and encoded for all of them
               at once, and bounded by one rate
    tail       what waits for one follower

So open tails hardly slow decisions down: an entry is read once, however many watch it, and no tail
ever holds up the reader. Knows no HTTP.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress

from control_api.log.search import EventFilters
from control_api.log.tail_reading import Part, read_missed, read_new
from control_api.store.group_commit import start_task
from control_api.store.queries.redactions import log_size
from control_api.store.store import Store
from policies.ground.errors import SluiceError, Unavailable

TURN_SECONDS = 1.0
"""Seconds that a new decision may wait before it is shown. Each turn is one write to each tail,
which is most of a tail's cost."""
EVENTS_AT_ONCE, EVENTS_PER_SECOND = 20, 10.0
"""The most events that a tail shows at once, and per second: more than anyone reads. The others are
only counted."""
MAX_TAILS = 500
"""The most tails open in one process."""
MAX_OF_OWNER = 10
"""The most tails of one session or key open in one process."""
_log = logging.getLogger("sluice.follow")


class Tail:
    """The new events that wait for one follower: the newest, at most `EVENTS_AT_ONCE`. A slow
    follower gets only the number of the others."""

    def __init__(self, reader: "_Reader", begin: int) -> None:
        self.begin = begin
        """The number of the first entry that this tail shows."""
        self.missed = Part(begin, [])
        """The events that the follower missed since its last connection; they are shown first."""
        self._reader = reader
        self._waiting: Part | None = None
        self._news = asyncio.Event()

    @property
    def ended(self) -> bool:
        """True if no more events follow, because the service stops or its database does not
        answer."""
        return self._reader.ended

    @property
    def position(self) -> int:
        """The number of the next entry to show, once nothing waits."""
        return max(self.begin, self._reader.position)

    def offer(self, part: Part) -> None:
        if (old := self._waiting) is not None:
            events = old.events + part.events
            passed = max(0, len(events) - EVENTS_AT_ONCE)
            left_out = old.left_out + part.left_out + passed
            part = Part(part.until, events[passed:], left_out, old.unread + part.unread)
        self._waiting = part
        self.wake()

    def wake(self) -> None:
        self._news.set()

    async def next(self, seconds: float) -> Part | None:
        """Wait up to `seconds` for new events. Returns None if there are none within this time, or
        if the tail has ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
        self._news.clear()
        part, self._waiting = self._waiting, None
        if part is None or part.until <= self.begin:
            return None
        # Another process may have shown this follower more than this one had read.
        if part.events and part.events[0].seq < self.begin:
            fresh = [each for each in part.events if each.seq >= self.begin]
            part = part._replace(events=fresh)
        return part


class _Group:
    def __init__(self, now: float) -> None:
        self.tails: set[Tail] = set()
        self._left = float(EVENTS_AT_ONCE)
        self._at = now

    def allowed(self, now: float) -> int:
        self._left = min(EVENTS_AT_ONCE, self._left + (now - self._at) * EVENTS_PER_SECOND)
        self._at = now
        return int(self._left)

    def offer(self, part: Part) -> None:
        self._left -= len(part.events)
        for tail in self.tails:
            tail.offer(part)


class _Reader:
    """Reads one log's new entries for its tails. `users` counts the tails, and those that are about
    to be opened."""

    def __init__(self, store: Store, tenant_id: str, position: int) -> None:
        self.position = position
        self.users = 0
        self.ended = False
        # Held during a turn: a tail joins between two, so that it knows where it begins.
        self.turn = asyncio.Lock()
        self.groups: dict[EventFilters, _Group] = {}
        self._store = store
        self._tenant_id = tenant_id

    async def run(self, stopping: asyncio.Event) -> None:
        """Read in turns until no tail is left, the service stops or the database does not
        answer."""
        try:
            while self.users:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TURN_SECONDS):
                        await stopping.wait()
                        return
                async with self.turn:
                    await self._turn()
        except SluiceError as error:
            # Followers come back by themselves, and go on where they were.
            _log.warning("tails of tenant `%s` end: %s", self._tenant_id, error.message)
        except Exception:  # noqa: BLE001
            # A tail must never end the service.
            _log.exception("tails of tenant `%s` end", self._tenant_id)
        finally:
            self.ended = True
            for group in self.groups.values():
                for tail in group.tails:
                    tail.wake()

    async def _turn(self) -> None:
        now = self._store.clock.monotonic()
        allowed = {filters: group.allowed(now) for filters, group in self.groups.items()}
        self.position, parts = await self._store.run_reading(
            self._tenant_id,
            lambda connection: read_new(connection, self._tenant_id, self.position, allowed),
        )
        for filters, part in parts.items():
            # Its last tail may have left meanwhile.
            if (group := self.groups.get(filters)) is not None:
                group.offer(part)


class EventTails:
    """All open tails of this process. They end when `stopping` is set."""

    def __init__(self, store: Store, stopping: asyncio.Event) -> None:
        self._store = store
        self._stopping = stopping
        self._readers: dict[str, _Reader] = {}
        self._owners: Counter[Hashable] = Counter()

    def __len__(self) -> int:
        return self._owners.total()

    def require_room(self, owner: Hashable) -> None:
        """Raise `Unavailable` if this owner, or this process, has as many tails as are allowed."""
        if self._owners[owner] >= MAX_OF_OWNER:
            raise Unavailable(
                f"{MAX_OF_OWNER} live tails of this session are open already, the most allowed: "
                "close one"
            )
        if len(self) >= MAX_TAILS:
            raise Unavailable(
                f"{MAX_TAILS} live tails are open already, the most allowed: try again later"
            )

    @asynccontextmanager
    async def follow(
        self, tenant_id: str, owner: Hashable, filters: EventFilters, after: int | None
    ) -> AsyncIterator[Tail]:
        """Open a tail of the matching events: those from entry `after` on, or only new ones if that
        is None. Raises like `require_room`, and `ReadFault`."""
        self.require_room(owner)
        self._owners[owner] += 1
        try:
            async with self._reader(tenant_id) as reader:
                async with reader.turn:
                    live = reader.position
                    group = reader.groups.get(filters)
                    if group is None:
                        group = _Group(self._store.clock.monotonic())
                        reader.groups[filters] = group
                    tail = Tail(reader, live)
                    group.tails.add(tail)
                try:
                    if after is not None:
                        await self._catch_up(tail, tenant_id, filters, after)
                    yield tail
                finally:
                    group.tails.discard(tail)
                    if not group.tails:
                        reader.groups.pop(filters, None)
        finally:
            self._owners[owner] -= 1
            self._owners += Counter()  # forgets owners without a tail

    async def _catch_up(
        self, tail: Tail, tenant_id: str, filters: EventFilters, after: int
    ) -> None:
        live = tail.begin
        async with self._store.reading(tenant_id) as connection:
            if after < live:
                missed = range(after, live)
                tail.missed = await read_missed(connection, tenant_id, filters, missed)
            elif after > live:
                # Another process was ahead of this one; or the database is older than it was.
                tail.begin = min(after, await log_size(connection, tenant_id))

    @asynccontextmanager
    async def _reader(self, tenant_id: str) -> AsyncIterator[_Reader]:
        reader = self._readers.get(tenant_id)
        if reader is None or reader.ended:
            async with self._store.reading(tenant_id) as connection:
                size = await log_size(connection, tenant_id)
            reader = self._readers.get(tenant_id)  # another tail may have started one meanwhile
            if reader is None or reader.ended:
                reader = self._readers[tenant_id] = _Reader(self._store, tenant_id, size)
                start_task(self._store.group, reader.run(self._stopping))
        reader.users += 1
        try:
            yield reader
        finally:
            reader.users -= 1
            if not reader.users and self._readers.get(tenant_id) is reader:
                del self._readers[tenant_id]
