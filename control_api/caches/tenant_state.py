"""One tenant in this process: its policy set, the sessions seen, and who waits for a change.

Knows documents and revisions. Knows neither SQL nor HTTP: `load` is the port to the table of
documents. What is here is a copy: it may be forgotten at any time, and is loaded when next needed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import orjson

from control_api.caches.session_cache import SessionCache
from policies.definitions.model import TenantSettings
from policies.retrieval import Retrieval
from policies.sets.policy_set import TENANT, PolicySet, agent_name, key_name, role_name

Load = Callable[[Sequence[str]], Awaitable[Mapping[str, bytes | None]]]

KEEP = 8192
"""Documents that are kept as bytes, those that are known to be absent included."""


class TenantState:
    """A tenant's policy set at `policy_set.revision`, loaded document by document."""

    def __init__(self, tenant_id: str, revision: int, active: bool, load: Load) -> None:
        self.tenant_id = tenant_id
        self.active = active
        self.sessions = SessionCache()
        self._bodies: dict[str, bytes | None] = {}
        self.policy_set = PolicySet(self._bodies.get)
        self.policy_set.revision = revision
        self._load = load
        self._changes = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._listening: set[asyncio.Future[None]] = set()

    async def need(self, names: Iterable[str]) -> None:
        """Make these documents available to the policy set; returns at once where they are.

        After it returns, and until the next `await`, every one of them is here.
        """
        wanted = tuple(names)
        while missing := [name for name in wanted if name not in self._bodies]:
            changes = self._changes
            found = await self._load(missing)
            if changes != self._changes:
                # A document was published while we read: what we read may be what it replaced.
                continue
            for name in missing:
                if len(self._bodies) >= KEEP:
                    self._bodies.pop(next(iter(self._bodies)))
                self._bodies[name] = found.get(name)

    async def need_for(self, *retrievals: Retrieval) -> None:
        """What decisions on `retrievals` look at, beside the key."""
        names = [TENANT]
        for each in retrievals:
            names.append(role_name(each.agent_role))
            if each.agent_id is not None:
                names.append(agent_name(each.agent_id))
        await self.need(dict.fromkeys(names))

    async def need_key(self, digest: bytes) -> None:
        await self.need((key_name(digest),))

    def published(self, revision: int, documents: Mapping[str, bytes | None]) -> None:
        """These documents were committed: in force here before the writer's answer leaves."""
        self._changes += 1
        for name, body in documents.items():
            if name in self._bodies:
                self._bodies[name] = body
        self.policy_set.apply(documents, revision)
        self.sessions.revoked(documents)
        if (settings := documents.get(TENANT)) is not None:
            self.active = TenantSettings.from_wire(orjson.loads(settings)).active
        self.wake()

    def forget(self, revision: int) -> None:
        """Whatever is here may have been replaced by another process."""
        self._changes += 1
        self._bodies.clear()
        self.sessions.forget()
        self.policy_set.reset(revision)
        self.wake()

    def wake(self) -> None:
        """Let everyone who waits look again."""
        _wake(self._waiting)
        _wake(self._listening)

    async def wait(self, seconds: float) -> None:
        """Until something changes, or for so long."""
        await _wait(self._waiting, seconds)

    def heard(self) -> None:
        """A sidecar has reported to this process."""
        _wake(self._listening)

    async def wait_report(self, seconds: float) -> None:
        """Until a sidecar reports to this process, or for so long."""
        await _wait(self._listening, seconds)

    @property
    def has_waiters(self) -> bool:
        return bool(self._waiting or self._listening)


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)


async def _wait(waiting: set[asyncio.Future[None]], seconds: float) -> None:
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.add(waiter)
    try:
        async with asyncio.timeout(seconds):
            await waiter
    except TimeoutError:
        pass
    finally:
        waiting.discard(waiter)
