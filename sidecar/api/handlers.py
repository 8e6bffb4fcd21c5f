"""Answers requests to the sidecar's own ports: `POST /v1/context/evaluate`, `GET /v1/sources`,
health, readiness and metrics.

Also the route that stops the sidecar, for a Job whose sidecar is an ordinary container and would
otherwise outlive the Job's own work. If it is served at all, it has a port on loopback to itself;
the callback that stops the process is an argument.

A handler parses, calls one use case and renders. Knows neither how a decision is made nor how HTTP
is spoken (`dispatch`, `http_server`).
"""

import logging
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl

import orjson
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from policies import __version__
from policies.batch import parse_batch
from policies.ground.canonical import parse_object
from policies.ground.errors import Malformed, Unavailable, invalid
from policies.retrieval import parse_retrieval
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute, decision_lines, traced
from sidecar.api.source_catalog import SourceCatalog
from sidecar.enforce import Enforcer, EntryPoint
from sidecar.live_keys import EVALUATING_SCOPES
from sidecar.metrics.metrics import Metrics
from sidecar.metrics.readiness import Readiness
from sidecar.recorder import RecordedDecision

_READ = ("GET", "HEAD")


class Api:
    def __init__(
        self, enforcer: Enforcer, catalog: SourceCatalog, readiness: Readiness, metrics: Metrics
    ) -> None:
        self._enforcer = enforcer
        self._catalog = catalog
        self._readiness = readiness
        self._metrics = metrics

    def routes(self) -> Mapping[str, ApiRoute]:
        tracer = self._enforcer.tracer
        return {
            "/v1/context/evaluate": ApiRoute(
                "evaluate_context", ("POST",), EVALUATING_SCOPES, traced(self._evaluate, tracer)
            ),
            "/v1/context/evaluate/batch": ApiRoute(
                "evaluate_batch", ("POST",), EVALUATING_SCOPES, traced(self._evaluate_batch, tracer)
            ),
            "/v1/sources": ApiRoute("list_sources", _READ, EVALUATING_SCOPES, self.sources),
            "/health": ApiRoute("show_liveness", _READ, None, self.health),
            "/health/ready": ApiRoute("show_readiness", _READ, None, self.ready),
        }

    def metrics_routes(self) -> Mapping[str, ApiRoute]:
        return {"/metrics": ApiRoute("show_metrics", _READ, None, self.metrics)}

    async def _evaluate(self, request: ApiRequest, body: bytes) -> ApiReply:
        retrieval = parse_retrieval(parse_object(body, request.content_type, unique=False))
        explained = bool(request.query) and _wants_explanation(request.query)
        entry_point = EntryPoint(watch=request.watch_client)
        [recorded] = await self._enforcer.decide((retrieval,), request.key, entry_point)
        members: dict[str, object] = {**recorded.evaluation()}
        if explained:
            # No await in between: the explanation sees the same policies as the decision.
            explanation = self._enforcer.preview.explain(retrieval, request.key, recorded.decision)
            members = members | {"explain": explanation}
        lines, durable = decision_lines(recorded), recorded.durable
        return ApiReply(orjson.dumps(members), durable=durable, extra_lines=lines)

    async def _evaluate_batch(self, request: ApiRequest, body: bytes) -> ApiReply:
        """Decide and record each item by itself. The response waits until all records are on
        disk."""
        batch = parse_batch(parse_object(body, request.content_type, unique=False))
        entry_point = EntryPoint("evaluate_batch", request.watch_client)
        decided: list[RecordedDecision] = []
        for retrieval in batch.retrievals:
            if request.client_left():
                break
            decided += await self._enforcer.decide((retrieval,), request.key, entry_point)
            if decided[-1].decision.decision == batch.stop_on:
                break
        # Wait only after all are decided: one sync of the disk then serves the whole batch.
        for recorded in decided:
            await recorded.durable
        return ApiReply(orjson.dumps({"results": [recorded.evaluation() for recorded in decided]}))

    async def sources(self, request: ApiRequest, _body: bytes) -> ApiReply:
        """List the sources that the caller may read. Leaves no record, since it reads no data.
        Raises `MissingDocument` while a document that it needs is missing."""
        assert request.key is not None  # the route requires one
        role = _parameter(request.query, "agent_role")
        return ApiReply(orjson.dumps(self._catalog.snapshot(request.key, role)))

    async def health(self, _request: ApiRequest, _body: bytes) -> ApiReply:
        return ApiReply(orjson.dumps({"status": "ok", "version": __version__}))

    async def ready(self, _request: ApiRequest, _body: bytes) -> ApiReply:
        # Anyone may ask, without a key, so the answer holds no paths, addresses or names.
        problems = self._readiness.problems()
        if problems:
            details = "\n".join(f"{name}: {why}" for name, why in problems.items())
            raise Unavailable("the sidecar is not ready", details=details)
        return ApiReply(
            orjson.dumps({"status": "ready", "version": __version__, **self._readiness.facts()})
        )

    async def metrics(self, _request: ApiRequest, _body: bytes) -> ApiReply:
        return ApiReply(generate_latest(self._metrics.registry), CONTENT_TYPE_PLAIN_0_0_4.encode())


def _wants_explanation(query: str) -> bool:
    """Return whether the query has `explain=true`. Raises `Invalid` if the value is neither true
    nor false."""
    value = _parameter(query, "explain")
    if value not in (None, "true", "false"):
        raise invalid(["explain: must be `true` or `false`"], "query")
    return value == "true"


def _parameter(query: str, name: str) -> str | None:
    """Return the query's value for the parameter `name`; None if it is not given. Raises `Invalid`
    if it is given twice, and `Malformed` if there are too many parameters."""
    try:
        # Limited, because a query that fills the request line could hold thousands.
        fields = parse_qsl(query, True, max_num_fields=64)
    except ValueError:
        raise Malformed("the query has more than 64 parameters") from None
    values = [value for field, value in fields if field == name]
    if len(values) > 1:
        # One reader would use the first, another the last.
        raise invalid([f"{name}: is given twice"], "query")
    return values[0] if values else None


STOP_PATH = "/quitquitquit"
log = logging.getLogger(__name__)


def stop_routes(stop: Callable[[], None]) -> Mapping[str, ApiRoute]:
    """Return the table with the route that stops the sidecar. `stop` has the effect of SIGTERM, and
    returns at once."""

    async def handle(_request: ApiRequest, _body: bytes) -> ApiReply:
        log.info("asked to stop at %s", STOP_PATH)
        # What is in progress is finished first, this answer included.
        stop()
        return ApiReply(b'{"status":"stopping"}')

    # It needs no key: a program on the pod's loopback can only end its own access to data.
    return {STOP_PATH: ApiRoute("stop", ("POST",), None, handle, programs_only=True)}
