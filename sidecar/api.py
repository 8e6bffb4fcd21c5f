"""What the sidecar serves on its own port: `POST /v1/context/evaluate`, health, readiness, metrics.

Handlers parse, call one use case, render. Knows neither how a decision is made nor how HTTP is
spoken (`dispatch`, `server`).
"""

from collections.abc import Awaitable, Mapping

import orjson
from aiohttp import hdrs
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from policies import __version__
from policies.ground.body import parse_object
from policies.ground.errors import Unavailable
from policies.model import Key
from policies.retrieval import Retrieval, parse_retrieval
from sidecar.dispatch import Call, Reply, Route
from sidecar.enforce import Enforcer, Pending
from sidecar.identity import EVALUATING_SCOPES
from sidecar.metrics import Metrics
from sidecar.readiness import Readiness

_READ = (hdrs.METH_GET, hdrs.METH_HEAD)


class Api:
    """The handlers."""

    def __init__(self, enforcer: Enforcer, readiness: Readiness, metrics: Metrics) -> None:
        self._enforcer = enforcer
        self._readiness = readiness
        self._metrics = metrics

    def routes(self) -> Mapping[str, Route]:
        return {
            "/v1/context/evaluate": Route(
                "evaluate", (hdrs.METH_POST,), EVALUATING_SCOPES, self.evaluate
            ),
            "/health": Route("health", _READ, None, self.health),
            "/health/ready": Route("ready", _READ, None, self.ready),
        }

    def metrics_routes(self) -> Mapping[str, Route]:
        return {"/metrics": Route("metrics", _READ, None, self.metrics)}

    def evaluate(self, call: Call, body: bytes) -> Reply | Awaitable[Reply]:
        retrieval = parse_retrieval(parse_object(body, call.content_type, unique=False))
        if self._enforcer.must_claim(retrieval, call.key):
            return self._claimed_first(retrieval, call.key)
        return _told(self._enforcer.decide(retrieval, call.key))

    async def _claimed_first(self, retrieval: Retrieval, key: Key | None) -> Reply:
        return _told(await self._enforcer.submit(retrieval, key))

    def health(self, _call: Call, _body: bytes) -> Reply:
        return Reply(orjson.dumps({"status": "ok", "version": __version__}))

    def ready(self, _call: Call, _body: bytes) -> Reply:
        problems = self._readiness.problems()
        if problems:
            details = "\n".join(f"{name}: {why}" for name, why in problems.items())
            raise Unavailable("the sidecar is not ready", details=details)
        return Reply(orjson.dumps({"status": "ready", "version": __version__}))

    def metrics(self, _call: Call, _body: bytes) -> Reply:
        return Reply(generate_latest(self._metrics.registry), CONTENT_TYPE_PLAIN_0_0_4.encode())


def _told(pending: Pending) -> Reply:
    answer, policy_name, reason = pending.decision[:3]
    told = {
        "decision": answer,
        "policy_name": policy_name,
        "reason": reason,
        "event_id": pending.event_id,
    }
    return Reply(orjson.dumps(told), durable=pending.durable)
