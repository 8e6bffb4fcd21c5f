"""Connections that are passed through unread: decided once for the whole data source before the
first byte passes, then joined to an upstream connection of their own.

Anything may be read and written through such a connection. So it is decided as reading the whole
source (`<kind>://<alias>`) at the highest level that the source has, and denied if the source
denies `writes`, except for the kind `tcp`. It is decided again every second while it lasts, so a
revocation cuts it.

Knows decisions and connections. Knows nothing of what passes.
"""

import hashlib
from typing import NamedTuple

from policies.ground.errors import UpstreamFailed
from sidecar.http.attribution import Attribution
from sidecar.http.server.request import Flow
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.proxy.connections import BufferedConnection, Splice
from sidecar.proxy.limits import ProxyLimits
from sidecar.proxy.messages.response_relay import RelayedResponse
from sidecar.proxy.pipeline.authorizer import WRITE_DENIED, Authorizer, Denied, Refused
from sidecar.proxy.pipeline.lineage import FAILED, TRUNCATED, LineageRecorder
from sidecar.proxy.pipeline.reauthorization import TunnelResult, run_tunnel
from sidecar.proxy.pipeline.request_context import decision_label
from sidecar.proxy.proxy_metrics import ProxyMetrics
from sidecar.proxy.upstream.client import TunnelDialler
from sidecar.recorder import RecordedDecision
from sidecar.settings.model import Source
from sidecar.spool.errors import SpoolError

_NOTHING_PASSED = TunnelResult(FAILED, 0, 0, hashlib.sha256().hexdigest())


class Passthrough:
    def __init__(
        self,
        source: Source,
        authorizer: Authorizer,
        dialler: TunnelDialler,
        lineage: LineageRecorder,
        metrics: ProxyMetrics,
        limits: ProxyLimits,
    ) -> None:
        self._whole_source = SourceNames(source).whole_at_highest
        # Without HTTP, writes look like reads, so `writes` doesn't apply to `tcp`.
        self._writes = source.writes == "allow" or source.kind == "tcp"
        self._authorizer = authorizer
        self._dialler = dialler
        self._lineage = lineage
        self._metrics = metrics
        # Kept so that the totals don't fall when a tunnel ends.
        self._ended_flow = Flow()
        self._open: set[Splice] = set()
        self._limits = limits

    async def open(self, who: Attribution) -> "AllowedTunnel":
        """Decide about reading the whole source on behalf of `who`, and connect to the data source
        once the record is on disk. Raises `Denied`, `Refused`, `SpoolError`, and `UpstreamFailed`
        if the data source can't be reached."""
        started = self._lineage.now()
        try:
            decisions = await self._authorize(who)
        except Denied as denied:
            self._metrics.count_request("DENY", denied.status)
            raise
        try:
            # The record is on disk before the data source hears of the agent.
            for recorded in decisions:
                await recorded.durable
            upstream = await self._dialler.connect()
        except SpoolError:
            raise  # there may be no event for the lineage to refer to
        # Cancellation included: the decision is recorded, so its outcome has to be.
        except BaseException as error:
            result, status = _NOTHING_PASSED._replace(outcome=TRUNCATED), 0
            if isinstance(error, UpstreamFailed):
                result, status = _NOTHING_PASSED, error.status
                self._metrics.count_failure(error)
            self._note(decisions, result, status, started)
            self._metrics.count_request(decision_label(decisions), status)
            raise
        upstream.closed.add_done_callback(lambda _: self._dialler.free())
        self._metrics.count_request(decision_label(decisions), 200)
        return AllowedTunnel(self, who, decisions, upstream, started)

    async def run(self, agent: BufferedConnection, tunnel: "AllowedTunnel") -> None:
        """Splice the agent to the tunnel's upstream connection until both have ended, one is lost,
        nothing passes for too long, or the tunnel is no longer allowed."""

        async def reauthorize() -> None:
            await self._authorizer.reauthorize((self._whole_source,), tunnel.who)

        def done(result: TunnelResult) -> None:
            self._ended_flow.received += result.up
            self._ended_flow.sent += result.down
            self._note(tunnel.decisions, result, 200, tunnel.started)

        await run_tunnel(agent, tunnel.upstream, self._limits, reauthorize, done, self._open)

    @property
    def connections(self) -> int:
        return len(self._open)

    @property
    def flow(self) -> Flow:
        """The numbers of bytes passed so far, from agents and to them, in all tunnels to this
        source."""
        flow = Flow()
        flow.received = self._ended_flow.received + sum(each.up.count for each in self._open)
        flow.sent = self._ended_flow.sent + sum(each.down.count for each in self._open)
        return flow

    def drop(self, tunnel: "AllowedTunnel") -> None:
        tunnel.upstream.abort()
        self._note(tunnel.decisions, _NOTHING_PASSED, 502, tunnel.started)

    async def _authorize(self, who: Attribution) -> list[RecordedDecision]:
        if self._writes:
            return await self._authorizer.allow((self._whole_source,), who)
        reason = (
            "what passes through an encrypted tunnel can't be held to `writes: deny`: a source "
            "that is reached by one needs `terminate`, or `writes: allow`"
        )
        denied = await self._authorizer.refuse(Refused(403, WRITE_DENIED, reason, who))
        if not denied.recorded.report_only:
            raise denied
        return [denied.recorded]

    def _note(
        self, decisions: list[RecordedDecision], result: TunnelResult, status: int, started: float
    ) -> None:
        outcome, _, size, sha256 = result
        relayed = RelayedResponse()
        relayed.status = status
        relayed.record_tunnel(outcome, size, sha256)
        self._lineage.note(decisions, relayed, outcome, started)


class AllowedTunnel(NamedTuple):
    """An allowed connection that will be passed through unread: `who` it is for, the `decisions`
    that allow it, and its connection to the data source, `upstream`. `started` is when it was
    opened, by the monotonic clock."""

    passthrough: Passthrough
    who: Attribution
    decisions: list[RecordedDecision]
    upstream: BufferedConnection
    started: float

    async def run(self, agent: BufferedConnection) -> None:
        """Splice the agent to the data source; return when the tunnel has ended."""
        await self.passthrough.run(agent, self)

    def drop(self) -> None:
        """Close a tunnel that turned out not to be needed; its lineage says that nothing passed."""
        self.passthrough.drop(self)
