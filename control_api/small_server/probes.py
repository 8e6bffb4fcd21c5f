"""Serves health and metrics over plain HTTP: probes and scrapers have no certificate, and nothing
secret crosses this port."""

from collections.abc import Callable

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from control_api.small_server.answers import HEADERS, error_response
from policies.ground.errors import MethodNotAllowed, NotFound


class Probes:
    """The handler of the health port. `not_ready` returns why no review can be answered, or
    None."""

    def __init__(self, registry: CollectorRegistry, not_ready: Callable[[], str | None]) -> None:
        self._registry = registry
        self._not_ready = not_ready

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return error_response(MethodNotAllowed())
        match request.raw_path.partition("?")[0]:
            case "/health":
                return _status(200, "ok")
            case "/health/ready":
                reason = self._not_ready()
                return _status(200, "ready") if reason is None else _status(503, reason)
            case "/metrics":
                headers = {**HEADERS, "Content-Type": CONTENT_TYPE_LATEST}
                return web.Response(body=generate_latest(self._registry), headers=headers)
        return error_response(NotFound())


def _status(status: int, text: str) -> web.Response:
    return web.Response(status=status, body=orjson.dumps({"status": text}), headers=HEADERS)
