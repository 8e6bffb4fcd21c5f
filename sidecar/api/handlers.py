"""What the sidecar serves on its own port: `POST /v1/context/evaluate`, `GET /v1/sources`, health,
readiness, metrics.

Handlers parse, call one use case, render. Knows neither how a decision is made nor how HTTP is
spoken (`dispatch`, `server`).
"""

from collections.abc import Awaitable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import orjson
from aiohttp import hdrs
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from policies import __version__
from policies.batch import parse_batch
from policies.definitions.model import Key
from policies.ground.errors import Malformed, Unavailable, invalid
from policies.ground.json_body import parse_object
from policies.retrieval import Retrieval, parse_retrieval
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute
from sidecar.api.source_catalog import SourceCatalog
from sidecar.enforce import Enforcer
from sidecar.identity import EVALUATING_SCOPES
from sidecar.metrics.metrics import Metrics
from sidecar.metrics.readiness import Readiness
from sidecar.policy_cache.document_fetcher import MissingDocument
from sidecar.recorder import RecordedDecision

_READ = (hdrs.METH_GET, hdrs.METH_HEAD)
# Joined as bytes, since every evaluation is answered with them (contract, section 6).
_DECIDED = {
    "ALLOW": b"X-Sluice-Decision: ALLOW\r\nX-Sluice-Event-Id: %b\r\n",
    "DENY": b"X-Sluice-Decision: DENY\r\nX-Sluice-Event-Id: %b\r\n",
}


class Api:
    """The handlers."""

    def __init__(
        self, enforcer: Enforcer, readable: SourceCatalog, readiness: Readiness, metrics: Metrics
    ) -> None:
        self._enforcer = enforcer
        self._readable = readable
        self._readiness = readiness
        self._metrics = metrics

    def routes(self) -> Mapping[str, ApiRoute]:
        return {
            "/v1/context/evaluate": ApiRoute(
                "evaluate_context", (hdrs.METH_POST,), EVALUATING_SCOPES, self.evaluate
            ),
            "/v1/context/evaluate/batch": ApiRoute(
                "evaluate_batch", (hdrs.METH_POST,), EVALUATING_SCOPES, self.evaluate_batch
            ),
            "/v1/sources": ApiRoute("list_sources", _READ, EVALUATING_SCOPES, self.sources),
            "/health": ApiRoute("show_liveness", _READ, None, self.health),
            "/health/ready": ApiRoute("show_readiness", _READ, None, self.ready),
        }

    def metrics_routes(self) -> Mapping[str, ApiRoute]:
        return {"/metrics": ApiRoute("show_metrics", _READ, None, self.metrics)}

    def evaluate(self, call: ApiRequest, body: bytes) -> ApiReply | Awaitable[ApiReply]:
        retrieval = parse_retrieval(parse_object(body, call.content_type, unique=False))
        if call.query and _explains(call.query):
            return self._explained(retrieval, call.key)
        try:
            if not self._enforcer.must_claim(retrieval, call.key):
                return _told(self._enforcer.decide(retrieval, call.key))
        except MissingDocument:
            pass  # `submit` has it fetched
        return self._asked_first(retrieval, call.key)

    async def _asked_first(self, retrieval: Retrieval, key: Key | None) -> ApiReply:
        return _told(await self._enforcer.submit(retrieval, key))

    async def _explained(self, retrieval: Retrieval, key: Key | None) -> ApiReply:
        pending = await self._enforcer.submit(retrieval, key)
        # The same turn of the loop: what is explained is what it was decided by.
        why = self._enforcer.explain(retrieval, key, pending.decision)
        return _reply(_answer(pending) | {"explain": why}, pending)

    async def evaluate_batch(self, call: ApiRequest, body: bytes) -> ApiReply:
        """Each item is decided and recorded by itself; the answer waits for all of them."""
        asked = parse_batch(parse_object(body, call.content_type, unique=False))
        told: list[RecordedDecision] = []
        for retrieval in asked.retrievals:
            told.append(await self._enforcer.submit(retrieval, call.key))
            if told[-1].decision.decision == asked.stop_on:
                break
        for pending in told:
            await pending.durable
        return ApiReply(orjson.dumps({"results": [_answer(pending) for pending in told]}))

    def sources(self, call: ApiRequest, _body: bytes) -> ApiReply:
        """Not recorded: nothing is read. Raises `MissingDocument` until all it takes is here."""
        assert call.key is not None  # the route asks for one
        return ApiReply(
            orjson.dumps(self._readable.told(call.key, _given(call.query, "agent_role")))
        )

    def health(self, _call: ApiRequest, _body: bytes) -> ApiReply:
        return ApiReply(orjson.dumps({"status": "ok", "version": __version__}))

    def ready(self, _call: ApiRequest, _body: bytes) -> ApiReply:
        problems = self._readiness.problems()
        if problems:
            details = "\n".join(f"{name}: {why}" for name, why in problems.items())
            raise Unavailable("the sidecar is not ready", details=details)
        return ApiReply(
            orjson.dumps({"status": "ready", "version": __version__, **self._readiness.facts()})
        )

    def metrics(self, _call: ApiRequest, _body: bytes) -> ApiReply:
        return ApiReply(generate_latest(self._metrics.registry), CONTENT_TYPE_PLAIN_0_0_4.encode())


def _told(pending: RecordedDecision) -> ApiReply:
    return _reply(_answer(pending), pending)


def _reply(answer: dict[str, Any], pending: RecordedDecision) -> ApiReply:
    lines = _DECIDED[pending.decision.decision] % pending.event_id.encode()
    return ApiReply(orjson.dumps(answer), durable=pending.durable, more=lines)


def _answer(pending: RecordedDecision) -> dict[str, Any]:
    answer, policy_name, reason = pending.decision[:3]
    return {
        "decision": answer,
        "policy_name": policy_name,
        "reason": reason,
        "event_id": pending.event_id,
    }


def _explains(query: str) -> bool:
    """Whether `explain=true` is asked for; `Invalid` where it is neither that nor false."""
    given = _given(query, "explain")
    if given not in (None, "true", "false"):
        raise invalid(["explain: must be `true` or `false`"], "query")
    return given == "true"


def _given(query: str, name: str) -> str | None:
    """What the query says of `name`; `Invalid` where it says so twice."""
    try:
        given = [value for each, value in parse_qsl(query, True, max_num_fields=64) if each == name]
    except ValueError:
        raise Malformed("the query can't be read") from None
    if len(given) > 1:
        raise invalid([f"{name}: is given twice"], "query")
    return given[0] if given else None
