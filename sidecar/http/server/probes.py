"""Keeps a few places for probes beyond the limit of connections: an agent that holds all of them
must not get the sidecar restarted by the kubelet, nor hide it from Prometheus.

Each such connection gets one answer, if it asks for one of the paths of probes. If all places are
taken, the oldest connection is ended for the next one, so connections that are only held can't keep
a probe out. Knows no answer.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from policies.ground.connection_budget import HEAD_BYTES, ConnectionBudget, Slot
from sidecar.http.server.connections import Connections
from sidecar.http.server.request import HttpRequest
from sidecar.http.server.response import Answer, ResponseSent
from sidecar.http.server.service import Flow, Service

PLACES = 32
PATHS = frozenset(("/health", "/health/ready", "/metrics", "/quitquitquit"))

_HEAD_SECONDS = 5.0
"""How long the head of a probe may take."""


class ProbeBudget(ConnectionBudget):
    """`places` for connections beyond those of `all_ports`."""

    __slots__ = ("all_ports", "taken")

    def __init__(self, all_ports: ConnectionBudget, places: int = PLACES) -> None:
        super().__init__(places, places * HEAD_BYTES)
        self.all_ports = all_ports
        self.taken: dict[_ProbeSlot, Callable[[], None]] = {}
        """What ends each connection, the oldest first."""

    def slot(self) -> Slot:
        return _ProbeSlot(self)


class _ProbeSlot(Slot):
    __slots__ = ("_probes",)

    def __init__(self, budget: ProbeBudget) -> None:
        super().__init__(budget)
        self._probes = budget

    def take(self, abort: Callable[[], None]) -> bool:
        probes = self._probes
        if probes.open >= probes.most:
            oldest = next(iter(probes.taken))
            end = probes.taken[oldest]
            oldest.leave()
            end()
            probes.all_ports.refused += 1
        probes.taken[self] = abort
        return super().take(abort)

    def leave(self) -> None:
        self._probes.taken.pop(self, None)
        super().leave()


def probe_connections(service: Service) -> Connections:
    """Connections of the port of `service` beyond its limit, for probes alone."""

    def serve(request: HttpRequest) -> Coroutine[Any, Any, Answer]:
        request.stop_reading()
        if request.target.partition("?")[0] in PATHS:
            return service.serve(request)
        service.budget.refused += 1
        return _ended()

    limits = service.limits._replace(idle_seconds=_HEAD_SECONDS)
    budget = ProbeBudget(service.budget)
    return Connections(service._replace(serve=serve, limits=limits, flow=Flow(), budget=budget))


async def _ended() -> Answer:
    return ResponseSent(keep_alive=False)
