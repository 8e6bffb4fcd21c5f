"""Builds the table of AuthZEN's routes from the settings, and handles those of evaluation: `POST
/access/v1/evaluation` and `/access/v1/evaluations`.

A handler reads the question, maps it to a retrieval, has that decided like one of
`/v1/context/evaluate`, and renders the decision in the standard's form. Knows neither how a
decision is made nor how HTTP is spoken.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from policies.definitions.model import Key
from policies.ground.clock import Clock
from policies.ground.errors import Malformed
from policies.retrieval import Retrieval
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute, Handler, traced
from sidecar.api.source_catalog import source_refs
from sidecar.authzen.mapping import DOOR, Mapper
from sidecar.authzen.question import Question, read_evaluations, read_question
from sidecar.authzen.search.claimants import SearchPace
from sidecar.authzen.search.handlers import KEY_BYTES, PageTokens, SearchHandlers
from sidecar.authzen.search.searches import Searches
from sidecar.authzen.wire import Signer, describe, metadata_routes, read_body
from sidecar.enforce import Enforcer, EntryPoint
from sidecar.live_keys import EVALUATING_SCOPES
from sidecar.policy_cache.policy_view import AgentDocuments
from sidecar.recorder import RecordedDecision
from sidecar.settings.model import SidecarSettings
from sidecar.unmapped import UNMAPPED, Unmapped

_EVENT = b"X-Sluice-Event-Id: %b\r\n"
_ACCESS_DENIED = {"403": "access denied"}


class Authzen:
    def __init__(self, enforcer: Enforcer, mapper: Mapper) -> None:
        self._enforcer = enforcer
        self._mapper = mapper

    def routes(self) -> Mapping[str, ApiRoute]:
        return {
            "/access/v1/evaluation": self._route("authzen", self._evaluation),
            "/access/v1/evaluations": self._route("authzen_batch", self._evaluations),
        }

    def _route(self, name: str, handle: Handler) -> ApiRoute:
        handle = traced(handle, self._enforcer.tracer)
        return ApiRoute(name, ("POST",), EVALUATING_SCOPES, handle, describe_error=describe)

    async def _evaluation(self, request: ApiRequest, body: bytes) -> ApiReply:
        assert request.key is not None  # the route requires one
        question = read_question(read_body(body, request.content_type))
        asked = self._map(question, request.key)
        recorded = await self._decide(asked, request, request.key, "authzen")
        return ApiReply(
            orjson.dumps(_answer(recorded)),
            durable=recorded.durable,
            extra_lines=_EVENT % recorded.event_id.encode(),
        )

    async def _evaluations(self, request: ApiRequest, body: bytes) -> ApiReply:
        """Decide and record each item by itself. The response waits until all records are on
        disk."""
        assert request.key is not None  # the route requires one
        key = request.key
        evaluations = read_evaluations(read_body(body, request.content_type))
        if evaluations is None:
            return await self._evaluation(request, body)
        # INVARIANT: all are mapped before one is decided. A missing document ends the mapping and
        # has the request begin anew, and nothing may be recorded twice.
        mapped = [
            each if isinstance(each, Malformed) else self._map(each, key)
            for each in evaluations.items
        ]
        answers: list[dict[str, Any]] = []
        decided: list[RecordedDecision] = []
        for each in mapped:
            if request.client_left():
                break
            if isinstance(each, Malformed):
                answers.append(_item_error(each))
            else:
                decided.append(await self._decide(each, request, key, "authzen_batch"))
                answers.append(_answer(decided[-1]))
            if answers[-1]["decision"] is evaluations.stop_on:
                break
        # Wait only after all are decided: one sync of the disk then serves the whole batch.
        for recorded in decided:
            await recorded.durable
        return ApiReply(orjson.dumps({"evaluations": answers}))

    def _map(self, question: Question, key: Key) -> Retrieval | Unmapped:
        """Return the retrieval that the question stands for, or the error if there is none. Raises
        `MissingDocument` before anything is recorded."""
        try:
            return self._mapper.retrieval(question, key, self._enforcer.policies.policy_set)
        except Unmapped as fault:
            return fault

    async def _decide(
        self, asked: Retrieval | Unmapped, request: ApiRequest, key: Key, operation: str
    ) -> RecordedDecision:
        entry_point = EntryPoint(operation, request.watch_client)
        if isinstance(asked, Unmapped):
            return await self._enforcer.deny(
                asked.retrieval(DOOR), UNMAPPED, asked.reason, entry_point
            )
        [recorded] = await self._enforcer.decide((asked,), key, entry_point)
        return recorded


def _answer(recorded: RecordedDecision) -> dict[str, Any]:
    decision, policy_name, reason = recorded.decision[:3]
    context: dict[str, Any] = {
        "event_id": recorded.event_id,
        "policy_name": policy_name,
        "reason": reason,
    }
    if decision == "ALLOW":
        return {"decision": True, "context": context}
    context["reason_admin"] = {"403": reason}
    context["reason_user"] = _ACCESS_DENIED
    return {"decision": False, "context": context}


def _item_error(fault: Malformed) -> dict[str, Any]:
    error = {"status": fault.status, "message": fault.message}
    return {"decision": False, "context": {"error": error}}


def authzen_routes(
    settings: SidecarSettings, enforcer: Enforcer, agents: AgentDocuments, clock: Clock
) -> Mapping[str, ApiRoute]:
    """Return all routes of AuthZEN: evaluation, search, and the metadata if `authzen.url` is
    set."""
    mapper = Mapper(settings.authzen, enforcer.preview.speaks_for)
    source_ids = [each.source_id for source in settings.sources for each in source_refs(source)]
    pace = SearchPace(clock.monotonic, enforcer.metrics.evaluate_seconds.count)
    tokens = PageTokens(enforcer.random_bytes(KEY_BYTES), clock.monotonic)
    searches = Searches(enforcer, mapper, agents, source_ids, pace)
    routes = {**Authzen(enforcer, mapper).routes(), **SearchHandlers(searches, tokens).routes()}
    url = settings.authzen.url
    if url is not None:
        routes |= metadata_routes(url, _signer(settings), clock.now())
    return routes


def _signer(settings: SidecarSettings) -> Signer | None:
    path = settings.authzen.signing_key_file
    if path is None:
        return None
    from sidecar.authzen.signing_key import SigningKey  # megabytes, and few sign

    return SigningKey.load(path)
