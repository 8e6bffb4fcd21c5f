"""A connection whose bytes nobody here reads: decided once for the whole data source, before one of
them passes, and then joined to a connection of its own.

Through it anything may be read and written, so it is judged as reading the whole source
(`<kind>://<alias>`) at the highest level that the source has, and where `writes` are denied it is
denied. While it lasts it is judged again every second: a revocation cuts it.

Knows decisions and connections. Knows nothing of what passes.
"""

import asyncio
import hashlib
import logging
from typing import NamedTuple

from policies.ground.errors import SluiceError, UpstreamFailed
from policies.model import RANK
from sidecar.enforce import Pending
from sidecar.protocols.protocol import Place
from sidecar.proxy.attribution import Attribution
from sidecar.proxy.case import decided
from sidecar.proxy.dialler import Dialler, Heard
from sidecar.proxy.judge import Denied, Judge, Refused
from sidecar.proxy.limits import Limits
from sidecar.proxy.lineage import COMPLETED, FAILED, TRUNCATED, Lineage, Returned
from sidecar.proxy.side import Side
from sidecar.proxy.splice import Ended, Splice
from sidecar.proxy.traffic import Flow, Traffic
from sidecar.settings import Source

log = logging.getLogger(__name__)

WRITE_DENIED = "write_denied"


class Opaque:
    """The connections to one source that nobody reads."""

    def __init__(
        self,
        source: Source,
        judge: Judge,
        dialler: Dialler,
        lineage: Lineage,
        traffic: Traffic,
        limits: Limits,
    ) -> None:
        self._place = Place(f"{source.kind}://{source.alias}", _highest(source))
        # What is no HTTP has no writes that could be told from reads.
        self._writes = source.writes == "allow" or source.kind == "tcp"
        self._judge = judge
        self._dialler = dialler
        self._lineage = lineage
        self._traffic = traffic
        self._carried = Flow()
        self._open: set[Splice] = set()
        self._limits = limits

    async def open(self, who: Attribution) -> "Passed":
        """Decides, and connects once the record is on disk. Raises `Denied` or `Refused`,
        `UpstreamFailed` where the data source can't be reached, `SpoolError`."""
        started = asyncio.get_running_loop().time()
        try:
            pendings = await self._judged(who)
        except Denied as denied:
            self._traffic.answered("DENY", denied.status)
            raise
        for pending in pendings:
            await pending.durable
        try:
            connection = await self._dialler.connect()
        except BaseException as error:
            self._note(pendings, FAILED, None, started)
            if isinstance(error, UpstreamFailed):
                self._traffic.failed(error)
                self._traffic.answered(decided(pendings), error.status)
            raise
        transport, heard = connection.transport, connection.protocol
        assert transport is not None
        assert isinstance(heard, Heard)
        self._traffic.answered(decided(pendings), 200)

        def lost(_exc: Exception | None) -> None:
            connection.close()

        side = Side(self._limits.buffer_bytes, lost).adopt(transport, heard.held)
        if heard.ended:
            side.eof_received()
        return Passed(self, who, pendings, side, started)

    async def carry(self, agent: Side, passed: "Passed") -> None:
        """Joins the two until both have ended, one is lost, nothing passes for long, or it may be
        no longer."""
        digest = hashlib.sha256()
        upstream, who = passed.upstream, passed.who
        idle = self._limits.tunnel_idle_seconds
        splice = Splice(agent.transport, upstream.transport, idle, digest.update)
        agent.join(splice, splice.up, splice.down)
        upstream.join(splice, splice.down, splice.up)
        self._open.add(splice)
        finished = asyncio.get_running_loop().create_task(splice.finished())
        outcome = TRUNCATED
        try:
            while not (await asyncio.wait((finished,), timeout=self._limits.rejudge_seconds))[0]:
                await self._still(who)
            if finished.result().how is Ended.BOTH:
                outcome = COMPLETED
        except (Denied, SluiceError) as error:
            # A denial is recorded; there is nobody to tell but by the end of the connection.
            log.info("a tunnel is cut: %s", error)
        finally:
            splice.lost()
            finished.cancel()
            self._open.remove(splice)
            self._carried.received += splice.up.count
            self._carried.sent += splice.down.count
            self._note(passed.pendings, outcome, splice, passed.started, digest.hexdigest())

    @property
    def connections(self) -> int:
        """How many are joined."""
        return len(self._open)

    @property
    def flow(self) -> Flow:
        """The bytes that were passed on so far, from agents and to them."""
        flow = Flow()
        flow.received = self._carried.received + sum(each.up.count for each in self._open)
        flow.sent = self._carried.sent + sum(each.down.count for each in self._open)
        return flow

    def drop(self, passed: "Passed") -> None:
        passed.upstream.transport.abort()
        self._note(passed.pendings, FAILED, None, passed.started)

    async def _judged(self, who: Attribution) -> list[Pending]:
        if self._writes:
            return await self._judge.allow((self._place,), who)
        reason = (
            "what passes through an encrypted tunnel can't be held to `writes: deny`: a source "
            "that is reached by one needs `terminate`, or `writes: allow`"
        )
        denied = await self._judge.refuse(Refused(403, WRITE_DENIED, reason, who))
        if not denied.pending.let_through:
            raise denied
        return [denied.pending]

    async def _still(self, who: Attribution) -> None:
        """Raises `Denied`, recorded, where it would not be allowed any more."""
        permits = await self._judge.permitting(who)
        if not permits(self._place):
            await self._judge.allow((self._place,), who)

    def _note(
        self,
        pendings: list[Pending],
        outcome: str,
        splice: Splice | None,
        started: float,
        sha256: str = hashlib.sha256().hexdigest(),
    ) -> None:
        status, size = (502, 0) if splice is None else (200, splice.down.count)
        took = int((asyncio.get_running_loop().time() - started) * 1000)
        for pending in pendings:
            self._lineage.note(Returned(pending, outcome, status, size, sha256, took, 0))


class Passed(NamedTuple):
    """A connection that may be: on whose behalf and why, and the way to the data source."""

    opaque: Opaque
    who: Attribution
    pendings: list[Pending]
    upstream: Side
    started: float

    async def carry(self, agent: Side) -> None:
        """Lasts as long as the connection."""
        await self.opaque.carry(agent, self)

    def drop(self) -> None:
        """It came to nothing after all."""
        self.opaque.drop(self)


def _highest(source: Source) -> str:
    if source.sensitivity_field is not None:
        return "critical"
    levels = [source.sensitivity]
    levels += [named.sensitivity for named in source.names.values()]
    levels += [route.sensitivity for route in source.routes if route.sensitivity is not None]
    return max(levels, key=RANK.__getitem__)
