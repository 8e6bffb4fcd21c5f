"""What the sidecar serves on its own port: `POST /v1/context/evaluate`, health, readiness, metrics.

Handlers parse, call one use case, render. Knows neither how a decision is made nor how HTTP is
spoken (`dispatch`, `server`).
"""

from collections.abc import Mapping

import orjson
from aiohttp import hdrs
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from policies import __version__
from policies.ground.body import parse_object
from policies.ground.errors import Unavailable
from policies.retrieval import parse_retrieval
from sidecar.dispatch import Call, Reply, Route, read_body
from sidecar.enforce import Enforcer
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

    async def evaluate(self, call: Call) -> Reply:
        body = await read_body(call.request)
        given = parse_object(body, call.request.headers.get(hdrs.CONTENT_TYPE), unique=False)
        pending = await self._enforcer.evaluate(parse_retrieval(given), call.key)
        decision = pending.decision
        return Reply(
            orjson.dumps(
                {
                    "decision": decision.decision,
                    "policy_name": decision.policy_name,
                    "reason": decision.reason,
                    "event_id": pending.event_id,
                }
            )
        )

    async def health(self, _call: Call) -> Reply:
        return Reply(orjson.dumps({"status": "ok", "version": __version__}))

    async def ready(self, _call: Call) -> Reply:
        problems = self._readiness.problems()
        if problems:
            details = "\n".join(f"{name}: {why}" for name, why in problems.items())
            raise Unavailable("the sidecar is not ready", details=details)
        return Reply(orjson.dumps({"status": "ready", "version": __version__}))

    async def metrics(self, _call: Call) -> Reply:
        return Reply(
            generate_latest(self._metrics.registry), media=CONTENT_TYPE_PLAIN_0_0_4.encode()
        )
