"""A connection whose bytes nobody here reads: decided once for the whole data source, before one of
them passes, and then joined to a connection of its own.

Through it anything may be read and written, so it is judged as reading the whole source
(`<kind>://<alias>`) at the highest level that the source has, and where `writes` are denied it is
denied. While it lasts it is judged again every second: a revocation cuts it.

Knows decisions and connections. Knows nothing of what passes.
"""

import asyncio
import hashlib
from typing import NamedTuple

from policies.definitions.model import RANK
from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.protocols.messages import SourceRef
from sidecar.proxy.connections.buffered_connection import BufferedConnection
from sidecar.proxy.connections.splice import Splice
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.pipeline.authorizer import Authorizer, Denied, Refused
from sidecar.proxy.pipeline.lineage import FAILED, LineageRecorder, ReturnedDocuments
from sidecar.proxy.pipeline.request_context import decided
from sidecar.proxy.pipeline.tunnel_session import TunnelSession, joined
from sidecar.proxy.proxy_metrics import Flow, ProxyMetrics
from sidecar.proxy.upstream.dialler import Dialler, EarlyData
from sidecar.recorder import RecordedDecision
from sidecar.settings.model import Source
from sidecar.spool.errors import SpoolError

WRITE_DENIED = "write_denied"

_NOTHING = TunnelSession(FAILED, 0, 0, hashlib.sha256().hexdigest())


class Passthrough:
    """The connections to one source that nobody reads."""

    def __init__(
        self,
        source: Source,
        judge: Authorizer,
        dialler: Dialler,
        lineage: LineageRecorder,
        traffic: ProxyMetrics,
        limits: ProxyLimits,
    ) -> None:
        self._place = SourceRef(f"{source.kind}://{source.alias}", _highest(source))
        # What is no HTTP has no writes that could be told from reads.
        self._writes = source.writes == "allow" or source.kind == "tcp"
        self._judge = judge
        self._dialler = dialler
        self._lineage = lineage
        self._traffic = traffic
        self._carried = Flow()
        self._open: set[Splice] = set()
        self._limits = limits

    async def open(self, who: Attribution) -> "AllowedTunnel":
        """Decides, and connects once the record is on disk. Raises `Denied` or `Refused`,
        `UpstreamFailed` where the data source can't be reached, `SpoolError`."""
        started = asyncio.get_running_loop().time()
        try:
            pendings = await self._judged(who)
        except Denied as denied:
            self._traffic.answered("DENY", denied.status)
            raise
        try:
            for pending in pendings:
                await pending.durable
            connection = await self._dialler.connect()
        except SpoolError:
            raise  # there may be no event for lineage to stand on
        except BaseException as error:
            self._note(pendings, _NOTHING, 502, started)
            if isinstance(error, UpstreamFailed):
                self._traffic.failed(error)
                self._traffic.answered(decided(pendings), error.status)
            raise
        transport, heard = connection.transport, connection.protocol
        assert transport is not None
        assert isinstance(heard, EarlyData)
        self._traffic.answered(decided(pendings), 200)

        def lost(_exc: Exception | None) -> None:
            connection.close()

        side = BufferedConnection(self._limits.buffer_bytes, lost).adopt(transport, heard.held)
        if heard.ended:
            side.eof_received()
        return AllowedTunnel(self, who, pendings, side, started)

    async def carry(self, agent: BufferedConnection, passed: "AllowedTunnel") -> None:
        """Joins the two until both have ended, one is lost, nothing passes for long, or it may be
        no longer."""
        who = passed.who

        async def still() -> None:
            await self._judge.still((self._place,), who)

        def done(carried: TunnelSession) -> None:
            self._carried.received += carried.up
            self._carried.sent += carried.down
            self._note(passed.pendings, carried, 200, passed.started)

        await joined(agent, passed.upstream, self._limits, still, done, self._open)

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

    def drop(self, passed: "AllowedTunnel") -> None:
        passed.upstream.transport.abort()
        self._note(passed.pendings, _NOTHING, 502, passed.started)

    async def _judged(self, who: Attribution) -> list[RecordedDecision]:
        if self._writes:
            return await self._judge.allow((self._place,), who)
        reason = (
            "what passes through an encrypted tunnel can't be held to `writes: deny`: a source "
            "that is reached by one needs `terminate`, or `writes: allow`"
        )
        denied = await self._judge.refuse(Refused(403, WRITE_DENIED, reason, who))
        if not denied.pending.report_only:
            raise denied
        return [denied.pending]

    def _note(
        self, pendings: list[RecordedDecision], carried: TunnelSession, status: int, started: float
    ) -> None:
        took = int((asyncio.get_running_loop().time() - started) * 1000)
        outcome, _, size, sha256 = carried
        for pending in pendings:
            self._lineage.note(ReturnedDocuments(pending, outcome, status, size, sha256, took, 0))


class AllowedTunnel(NamedTuple):
    """A connection that may be: on whose behalf and why, and the way to the data source."""

    opaque: Passthrough
    who: Attribution
    pendings: list[RecordedDecision]
    upstream: BufferedConnection
    started: float

    async def carry(self, agent: BufferedConnection) -> None:
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
