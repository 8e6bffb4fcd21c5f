"""Judges the requests that a gateway asks about, for one check door. Finds the agent and its key,
and judges the request by the protocol tables, checks and records of the proxy. If the agent is
unknown, records a denial. If a check has no body that can be judged, says why, and which setting of
the gateway would send it.

A check can change neither the request nor the response. So if the proxy would narrow or filter a
request, or split it into several, it is judged here as reading the whole data source too, at the
source's highest level; documents with levels of their own count as `critical`; a continuation that
came through the gateway is not known here, and denied; and no lineage is written.

Knows keys. Knows neither HTTP nor gRPC.
"""

from typing import NamedTuple

from policies.definitions.model import Key
from policies.ground.errors import Forbidden, Malformed, Unauthorized, Unavailable
from policies.sets.policy_set import NoPolicySet
from sidecar.api.dispatch import fetch_missing
from sidecar.enforce import EntryPoint
from sidecar.http.attribution import attribution, default_attribution
from sidecar.http.headers import RequestHead, sort_request_fields
from sidecar.http.server.head_cache import HeadTemplate
from sidecar.live_keys import EVALUATING_SCOPES, AgentIdentity, LiveKeys, RefusedKeys, WrongScope
from sidecar.platform.eager import Watch, unwatched
from sidecar.policy_cache.policy_store import CacheDamaged
from sidecar.policy_cache.policy_view import MissingDocument
from sidecar.protocols.protocol import (
    FetchedResponse,
    ProtocolRoute,
    RefusalResponse,
    RoutedRequest,
)
from sidecar.protocols.registry import load_protocol
from sidecar.protocols.shared.source_names import SourceNames
from sidecar.proxy.messages.request_reader import body_media
from sidecar.proxy.pipeline.authorizer import UNREADABLE, Authorizer, Denied, Refused
from sidecar.proxy.pipeline.classifier import RequestClassifier, SourceRules
from sidecar.proxy.pipeline.request_context import RequestContext
from sidecar.proxy.pipeline.request_judge import UNRESOLVED, Judged, JudgedSource, judge
from sidecar.proxy.pipeline.upstream_sender import UpstreamSender
from sidecar.proxy.routing.source_endpoint import SharedParts, upstream_client
from sidecar.recorder import RecordedDecision
from sidecar.settings.model import Source
from sidecar.settings.sections import Door, DoorAgent, DoorProtocol
from sidecar.tracing import current_trace, within
from sidecar.unmapped import UNMAPPED, Unmapped, agent_of, role_of

_MAX_CALLERS = 1024
_OVERRIDES = frozenset(
    (b"x-http-method", b"x-http-method-override", b"x-method-override", b"x-rewrite-url")
)
_RESERVED = (
    *(b"x-api-key", b"x-envoy-original-", b"x-forwarded-", b"x-host", b"x-http-", b"x-original-"),
    *(b"x-override-", b"x-sluice-"),
)
"""Prefixes of names of headers that have a meaning for the check, or for programs behind it."""
# Programs behind CGI and WSGI read an underscore as a dash, and some any other mark too.
_READ = bytes(
    ord(chr(each).lower()) if chr(each).isalnum() and each < 128 else ord("-")
    for each in range(256)
)
"""Maps each byte of a header's name to the byte that a very lenient program would read it as:
letters in lower case, and `-` for anything but a letter or digit."""
_ATTRIBUTED = ("user", "session", "task")


_OF_ENVOY = (
    "the check carries no body: have the gateway send it along (Envoy: `with_request_body`; Envoy "
    "Gateway: `bodyToExtAuth`; Istio: `includeRequestBodyInCheck`; agentgateway: "
    "`includeRequestBody`)"
)
# It is not known here which gateway asks, so the texts name them all, and those that can't do it.
NO_BODY: dict[DoorProtocol, str] = {
    "envoy_http": _OF_ENVOY,
    "envoy_grpc": _OF_ENVOY,
    "forward_auth": (
        "the check carries no body: have the gateway send it along (Traefik: `forwardBody`; "
        "APISIX: `request_method: POST`; HAProxy: a body with a `Content-Length` that fits "
        "`tune.bufsize`). nginx, Caddy and Kong can't: ask by another gateway, or use the "
        "sidecar's proxy"
    ),
}
PARTIAL_BODY = (
    "the check carries only a part of the body, or does not say that it is whole: raise "
    "`max_request_bytes` of the gateway's `with_request_body`, and let its header "
    "`x-envoy-auth-partial-body` reach the door"
)


NO_CALLS = (
    "no check judges a call of gRPC: a gateway forwards its message as it came, and not as it was "
    "judged. Send calls to the sidecar's proxy: to the source's `listen` or `grpc_listen`, with "
    "its setting `grpc`"
)


class CheckedRequest(NamedTuple):
    """The request that a gateway asks about. `head` is made by `Judgement.head_of`."""

    method: str
    target: str
    """The request target as the client wrote it."""
    head: RequestHead
    body: bytes | None
    """The whole body; None if it isn't here."""
    missing: str
    """The reason why the body is not here, and the gateway's setting that would send it."""
    fault: str = ""
    """The reason why the request can't be read at all; empty if it can be read."""
    template: HeadTemplate | None = None
    """The template that `head` was made from; None if the head is not remembered."""
    traceparent: tuple[bytes, ...] = ()
    watch_client: Watch = unwatched
    """Reports when the gateway leaves: then nothing more is looked up, and the check is denied."""


class Outcome(NamedTuple):
    """The result of judging a checked request: the decisions about it. The request may pass only
    once each decision is durable."""

    passes: bool
    decisions: list[RecordedDecision]
    """The decisions, in the order of the sources that the request reads. Empty if it reads none, so
    that there was nothing to decide."""
    routed: RoutedRequest | None = None
    """The checked request, so far as it was read; None if it was not read."""
    status: int = 403
    """The HTTP status with which a proxy would answer the denial."""

    @property
    def shown(self) -> RecordedDecision | None:
        """The decision that the gateway is told: the first denial if there is one, in mode `report`
        too."""
        for recorded in self.decisions:
            if recorded.decision.decision != "ALLOW":
                return recorded
        return self.decisions[-1] if self.decisions else None


class Judgement:
    """Judges checks for one door. `source` is the data source that the door names; `keys` looks up
    the tenant's keys."""

    def __init__(self, door: Door, source: Source, shared: SharedParts, keys: LiveKeys) -> None:
        self.door = door
        self._source = source
        self._shared = shared
        self._keys = keys
        self._enforcer = shared.enforcer
        self._policies = shared.enforcer.policies
        refused = shared.enforcer.metrics.refused_keys
        self._refused_keys = RefusedKeys(refused, "check door", shared.clock.monotonic)
        # Not shared with the proxy, if that serves the source too: an agent must not continue here
        # what was issued to another agent there.
        self.protocol = load_protocol(source, shared.clock.monotonic)
        self._upstream = upstream_client(source, shared, source.upstream, source.http)
        self._sender = UpstreamSender(self.protocol, self._upstream, shared.limits)
        self._judged: dict[tuple[bytes | None, str | None, str], JudgedSource] = {}
        """The door's source, prepared for each caller: by key digest, agent id and role."""
        self._renamed = _renamed(door)

    def close(self) -> None:
        """Close the connections to the data source. Call this after the last check."""
        self._upstream.close()

    def head_of(self, fields: list[tuple[bytes, bytes]]) -> RequestHead:
        """Return the head of a request with these fields, without any field that carries the door's
        own key. Raises `Malformed`."""
        for name, _ in fields:
            # The proxy would not forward them. The gateway does, and a data source that believed
            # them would act on another method or path than the one judged (`proxy/RULES.md`, B25).
            read = name.translate(_READ)
            if read in _OVERRIDES or (read.startswith(_RESERVED) and read != name.lower()):
                raise Malformed(f"the header `{name.decode()}` may override what is judged")
        renamed = self._renamed
        if renamed:
            fields = [
                (renamed.get(name.lower(), name), value)
                for name, value in fields
                if renamed.get(name.lower(), name) != b""
            ]
        return sort_request_fields(fields)

    async def judge(self, check: CheckedRequest, digest: bytes | None) -> Outcome:
        """Judge a request about which a gateway asks with the key of this `digest`; None if the
        check carries no key. Raises `Unauthorized`, `Forbidden` for a key that is not valid, and
        any other `SluiceError` if nothing could be decided or recorded."""
        tracer = self._enforcer.tracer
        if tracer is None:
            return await self._judge(check, digest)
        with within(tracer.begin(check.traceparent, proxied=False)):
            return await self._judge(check, digest)

    def in_protocol_format(
        self, outcome: Outcome, decision: dict[str, str]
    ) -> FetchedResponse | None:
        """Return the denial in the format of the source's protocol; None if the protocol has none.
        `decision` are the four fields of an evaluation."""
        denial = RefusalResponse.of(outcome.status, decision["reason"], decision)
        return self.protocol.render_refusal(outcome.routed, denial)

    def admit(self, digest: bytes | None) -> None:
        """Raise the error that `judge` would raise for this key, if that is known without waiting.
        Call this before waiting for a body."""
        if self.door.key == "none":
            return
        try:
            self._key(digest)
        except MissingDocument:
            pass  # `judge` fetches it
        except (NoPolicySet, CacheDamaged) as error:
            raise _uncheckable(error) from error

    async def _judge(self, check: CheckedRequest, digest: bytes | None) -> Outcome:
        source: JudgedSource | None = None
        while source is None:
            try:
                source = self._source_of(digest)
                continue
            except MissingDocument as missing:
                absent = missing
            except (NoPolicySet, CacheDamaged) as error:
                raise _uncheckable(error) from error
            except Unmapped as error:
                return await self._unmapped(check, error)
            await fetch_missing(self._policies.document_fetcher, absent)
        context = RequestContext(0.0, current_trace(), check.watch_client)
        try:
            route, routed = _read(check, context, source)
            judged = await judge(source, route, routed, context)
        except Denied as error:
            return Outcome(False, [error.recorded], context.routed, error.status)
        except Refused as error:
            refused = error
        else:
            assert isinstance(judged, Judged)  # a check composes nothing
            self._passed(judged.route)
            return Outcome(True, judged.decisions, judged.routed)
        denied = await source.authorizer.refuse(refused, check.method, check.target)
        passes = denied.recorded.report_only
        if passes:
            self._passed(context.route)
        return Outcome(passes, [denied.recorded], context.routed, denied.status)

    def _passed(self, route: ProtocolRoute | None) -> None:
        """Tell the protocol that a request is about to be forwarded that may change the meaning of
        names. Answers that are cached until it takes effect are forgotten by age
        (`protocols/RULES.md`, Precedence)."""
        if route is not None and route.before_forward is not None:
            route.before_forward(self.protocol)

    def _source_of(self, digest: bytes | None) -> JudgedSource:
        """Return the door's source, prepared for the agent that makes the request. Raises
        `Unmapped` if the agent or its role is unknown."""
        agent = self.door.agent
        if self.door.key == "none":
            assert agent is not None  # the settings require it
            self._shared.agent.known_key()  # raises if there is no policy set
            agent_id, role, digest = agent.id, agent.role, None
        else:
            agent_id, role = self._speaker(self._key(digest))
        caller = (digest, agent_id, role)
        source = self._judged.get(caller)
        if source is None:
            if len(self._judged) >= _MAX_CALLERS:
                self._judged.clear()
            source = self._judged[caller] = self._judged_for(digest, agent_id, role)
        return source

    def _key(self, digest: bytes | None) -> Key:
        try:
            # INVARIANT: looked up for every check. Nothing remembered says that a key is valid.
            key = self._keys.of_caller(digest)
            if key.scope not in EVALUATING_SCOPES:
                raise WrongScope
        except (Unauthorized, Forbidden) as error:
            self._refused_keys.refused(self.door.protocol, self.door.name, error)
            raise
        self._refused_keys.taken(self.door.name)
        return key

    def _speaker(self, key: Key) -> tuple[str | None, str]:
        agent = self.door.agent
        if agent is not None:
            return agent.id, agent.role
        agent_id = agent_of(key)
        role = role_of(key, agent_id, self._policies.policy_set, self._enforcer.preview.speaks_for)
        if role is None:
            raise Unmapped(
                f"no role: set `agent` of the door `{self.door.name}`, or tie the key to an agent "
                "or to one role",
                agent_id=agent_id,
            )
        return agent_id, role

    def _judged_for(self, digest: bytes | None, agent_id: str | None, role: str) -> JudgedSource:
        agent = (
            KeylessDoorAgent(self._shared.agent, DoorAgent(agent_id, role), self._keys)
            if digest is None
            else AgentIdentity(agent_id, role, digest, self._keys)
        )
        who = default_attribution(self._source.defaults, agent.default_user)
        source, shared, names = self._source, self._shared, SourceNames(self._source)
        authorizer = Authorizer(
            self.door.name,
            names.whole,
            agent,
            self._enforcer,
            reports=source.mode == "report",
            entry_point_name=self.door.protocol,
        )
        # Calls of gRPC are classified, so that one of a closed method is denied as that, and all
        # others are refused by `_read`.
        rules = SourceRules(
            who, source.writes == "allow", source.sensitivity_field, source.opaque, grpc=True
        )
        classifier = RequestClassifier(self.protocol, rules, self._sender.fetch, shared.limits)
        return JudgedSource(
            self.protocol, authorizer, rules, classifier, shared.worker, names.whole_at_highest
        )

    async def _unmapped(self, check: CheckedRequest, error: Unmapped) -> Outcome:
        retrieval = error.retrieval(self.door.name)
        try:
            who = attribution(
                check.head, default_attribution(self._source.defaults, retrieval.user_id)
            )
        except Malformed:
            pass  # what can't be read is not recorded
        else:
            retrieval = retrieval._replace(user_id=who.user)
        entry_point = EntryPoint(self.door.protocol)
        denied = await self._enforcer.deny(retrieval, UNMAPPED, error.reason, entry_point)
        return Outcome(False, [denied])


def _read(
    check: CheckedRequest, context: RequestContext, source: JudgedSource
) -> tuple[ProtocolRoute, RoutedRequest]:
    """Return the route of a check and the request as it was read, and give `context` the body if
    the route needs it. Raises `Refused`."""
    if check.fault:
        raise Refused(400, UNREADABLE, check.fault, source.rules.default)
    context.head = check.head
    route, routed = source.classifier.classify_head(
        check.method, check.target, check.head, check.template, context
    )
    if route.is_call:
        # The proxy forwards the canonical form of the message, inflated, and with the database
        # that a header names: what another reader could understand differently never leaves it.
        raise Refused(403, UNRESOLVED, NO_CALLS, routed.attribution)
    if route.reads_body:
        try:
            if check.body is None:
                raise Malformed(check.missing)
            context.media = body_media(check.head)
        except Malformed as error:
            source.classifier.check_unread(route, routed, close=False)
            raise Refused(400, UNREADABLE, error.message, routed.attribution) from error
        context.body = check.body
    return route, routed


class KeylessDoorAgent(AgentIdentity):
    """The agent of a door that needs no key. Decisions about it use the key of `holder`, the
    sidecar's own agent."""

    def __init__(self, holder: AgentIdentity, agent: DoorAgent, keys: LiveKeys) -> None:
        super().__init__(agent.id, agent.role, b"", keys)
        self._holder = holder

    def known_key(self) -> Key | None:
        return self._holder.known_key()


def _uncheckable(error: Exception) -> Unavailable:
    # Without a policy set no key can be recognised; a valid one must not look like a bad one.
    return Unavailable(f"the API key can't be checked: {error}")


def _renamed(door: Door) -> dict[bytes, bytes]:
    """Return the header names to use for attribution, by the lower-case name that the client sends.
    An empty name means that the header is to be removed."""
    named = {short: getattr(door.headers, short).lower().encode() for short in _ATTRIBUTED}
    ours = {short: b"x-sluice-" + short.encode() for short in _ATTRIBUTED}
    if named == ours:
        return {}
    renamed = dict.fromkeys(ours.values(), b"")
    return renamed | {named[short]: ours[short] for short in _ATTRIBUTED}
