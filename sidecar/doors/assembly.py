"""Builds the check doors: a `Judgement` for each, and the ports that lead to them."""

from collections.abc import Callable, Sequence

from sidecar.api.dispatch import Dispatcher
from sidecar.api.http_server import Answering, HttpServer
from sidecar.doors.grpc.server import MAX_CALLS, GrpcMethods
from sidecar.doors.grpc.service import CheckService
from sidecar.doors.http_server import HttpDoors, SharedPort
from sidecar.doors.judgement import Judgement
from sidecar.http.http2.session import MAX_STREAMS
from sidecar.http.rendered_response import ResponseRenderer
from sidecar.http.server.head_cache import HeadCache
from sidecar.http.tls_contexts import ReloadingContext, server_context
from sidecar.live_keys import LiveKeys
from sidecar.proxy.routing.source_endpoint import SharedParts
from sidecar.settings.model import Kind, Pair, SidecarSettings
from sidecar.settings.sections import Door


class Doors:
    """All check doors of `settings`. New request ids start with `prefix`. `make_heads` makes the
    cache of request heads for one port. `ready` returns whether the sidecar is ready."""

    def __init__(
        self,
        settings: SidecarSettings,
        shared: SharedParts,
        keys: LiveKeys,
        renderer: ResponseRenderer,
        prefix: str,
        make_heads: Callable[[], HeadCache],
        ready: Callable[[], bool],
    ) -> None:
        sources = {source.alias: source for source in settings.sources}
        self._shared = shared
        self._renderer = renderer
        self._prefix = prefix
        self._make_heads = make_heads
        self._ready = ready
        self.judgements = [
            Judgement(door, sources[door.source], shared, keys) for door in settings.doors
        ]
        self.listeners = [
            self._server(each, self._http([each]))
            for each in self._over_http()
            if each.door.listen is not None
        ]
        self.listeners += [
            self._server(each, self._grpc(each, sources[each.door.source].kind), MAX_CALLS)
            for each in self.judgements
            if each.door.protocol == "envoy_grpc"
        ]
        """The servers of the ports on which only check doors listen."""

    def beside(self, api: Dispatcher) -> Answering:
        """Return the handler of all requests to the sidecar's own port: `api`, and the doors that
        have no port of their own."""
        here = [each for each in self._over_http() if each.door.listen is None]
        return SharedPort(api, self._http(here)) if here else api

    def close(self) -> None:
        """Close the doors' connections and threads. Call this after the last check."""
        for judgement in self.judgements:
            judgement.close()
        self._shared.worker.close()

    def _over_http(self) -> list[Judgement]:
        return [each for each in self.judgements if each.door.protocol != "envoy_grpc"]

    def _server(
        self, judgement: Judgement, answering: Answering, streams: int = MAX_STREAMS
    ) -> HttpServer:
        listen, tls = judgement.door.listen, _tls(judgement.door)
        assert listen is not None  # of a gRPC door, the settings require it
        guard, budget = self._shared.own_ports, self._shared.connections
        return HttpServer(listen, answering, guard, self._make_heads(), budget, tls, streams)

    def _grpc(self, judgement: Judgement, kind: Kind) -> GrpcMethods:
        metrics = self._shared.enforcer.metrics
        service = CheckService(judgement, kind, metrics.grpc_checks)
        return GrpcMethods(
            service,
            self._ready,
            self._shared.bodies,
            self._renderer,
            metrics.responses,
            self._prefix,
        )

    def _http(self, judgements: Sequence[Judgement]) -> HttpDoors:
        metrics = self._shared.enforcer.metrics
        return HttpDoors(judgements, self._renderer, metrics, self._prefix, self._shared.bodies)


def _tls(door: Door) -> ReloadingContext | None:
    files = door.listen_tls
    if files is None:
        return None
    return server_context(Pair(files.certificate, files.key), files.client_ca)
