"""Answers the checks of a gRPC door: reads each, has it judged, and renders the outcome.

Gateways that fail open let a request pass if the call fails. So every outcome and every error has a
CheckResponse. Knows neither HTTP/2 nor sockets.
"""

import logging
from typing import NamedTuple

import orjson

from policies.ground.errors import Forbidden, Malformed, SluiceError, Unauthorized, error_body
from sidecar.doors.grpc.check_messages import (
    PARTIAL_FLAG,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    CheckRequest,
    allowed,
    denied,
    dynamic_metadata,
    parse,
)
from sidecar.doors.judgement import NO_BODY, PARTIAL_BODY, CheckedRequest, Judgement, Outcome
from sidecar.http.headers import RequestHead
from sidecar.metrics.metrics import Counter, denied_by
from sidecar.platform.eager import Watch
from sidecar.recorder import RecordedDecision
from sidecar.settings.model import Kind
from sidecar.settings.sections import DoorHeaders

log = logging.getLogger(__name__)

MAX_MESSAGE = 2 << 20
"""The most bytes of a CheckRequest. Gateways cut a body at a limit of their own, so there is room
for little more than the largest body that is judged, and a head."""
_MAX_BODY = 1 << 20
TOO_LARGE = (
    f"the check has a message of more than {MAX_MESSAGE} bytes; let the gateway send bodies of at "
    f"most {_MAX_BODY} bytes (`max_request_bytes`)"
)
_LEVEL = b"x-sluice-sensitivity"
_NOT_OF_THE_REQUEST = {b"x-api-key", PARTIAL_FLAG}
_JSON = (b"content-type", b"application/json")
_RETRY = (b"retry-after", b"1")
_OPEN = dynamic_metadata("", "ALLOW", "", "none")
_NO_HEAD = RequestHead({}, b"", None)


class _Attributed(NamedTuple):
    """A header of a checked request that says who is asking or for whom."""

    header: bytes
    extension: str
    """The member of the gateway's `context_extensions` that replaces the header if it is
    present."""


class CheckService:
    """Answers the checks of one door. `kind` is the kind of the door's source. `checks` counts
    checks by the code of the answer."""

    def __init__(self, judgement: Judgement, kind: Kind, checks: Counter) -> None:
        self._judgement = judgement
        self._is_mcp = kind == "mcp"
        self._checks = checks
        self._attributed = _attributed(judgement.door.headers)
        self._single = {_LEVEL, *(each.header for each in self._attributed)}
        """The headers that may occur only once."""

    def admit(self, digest: bytes | None) -> None:
        """Raise the error that `judge` would raise for this key, if that is known without waiting.
        Call this before reading a message."""
        self._judgement.admit(digest)

    async def judge(self, message: bytes, digest: bytes | None, watch: Watch) -> Outcome:
        """Judge a CheckRequest that carries the key of this digest. `watch` reports when the
        gateway leaves. Raises what `Judgement.judge` raises."""
        check = self._checked(message)
        return await self._judgement.judge(check._replace(watch_client=watch), digest)

    async def deny_unreadable(self, fault: str, digest: bytes | None) -> Outcome:
        """Judge a check without a readable message, for the reason `fault`. Raises what
        `Judgement.judge` raises."""
        log.info("a check was denied: %s", fault)
        return await self._judgement.judge(_unreadable(fault), digest)

    def answer(self, outcome: Outcome) -> bytes:
        """Return the CheckResponse to a judged check. Call this once every decision is durable."""
        return self._passed(outcome) if outcome.passes else self._stopped(outcome)

    def failed(self, error: BaseException) -> bytes:
        """Return the CheckResponse to a check about which nothing was decided because of
        `error`."""
        if isinstance(error, SluiceError):
            return self._undecided(error)
        log.error("a check failed", exc_info=error)
        return self._undecided(SluiceError("internal error"))

    def _checked(self, message: bytes) -> CheckedRequest:
        """Return the request that the check asks about. If it can't be read, the result says so in
        `fault`."""
        try:
            check = parse(message)
            fields = self._with_extensions(check)
            head = self._judgement.head_of(fields)
            body, missing = _body(check)
        except Malformed as error:
            return _unreadable(error.message)
        traces = tuple(value for name, value in fields if name == b"traceparent")
        return CheckedRequest(check.method, check.target, head, body, missing, traceparent=traces)

    def _with_extensions(self, check: CheckRequest) -> list[tuple[bytes, bytes]]:
        """Return the headers, in which the gateway's own extensions replace headers with the same
        meaning. Raises `Malformed` if a header that attributes the request may have occurred
        several times."""
        stated = [
            (header, check.extensions[extension].encode())
            for header, extension in self._attributed
            if extension in check.extensions
        ]
        # The judgement may send these fields to the data source, which must not get the end user's
        # key either.
        removed = {header for header, _ in stated} | _NOT_OF_THE_REQUEST
        fields = [field for field in check.fields if field[0] not in removed]
        if check.joined:
            for name, value in fields:
                if b"," in value and name in self._single:
                    raise Malformed(
                        f"the header `{name.decode()}` has a comma, so it may have been sent "
                        "twice; let the gateway send each by `encode_raw_headers`"
                    )
        return fields + stated

    def _passed(self, outcome: Outcome) -> bytes:
        self._checks.add("0")
        shown = outcome.shown
        if shown is None:  # nothing was decided, so there is no event
            return allowed("", _OPEN)
        reported = shown.decision.decision == "DENY"
        return allowed(shown.event_id, _metadata(shown), reported=reported)

    def _stopped(self, outcome: Outcome) -> bytes:
        shown = outcome.shown
        assert shown is not None  # every denial is recorded
        self._checks.add(str(PERMISSION_DENIED))
        evaluation = shown.evaluation()
        headers = [
            _JSON,
            (b"x-sluice-decision", b"DENY"),
            (b"x-sluice-event-id", shown.event_id.encode()),
        ]
        status, body = 403, b""
        if self._is_mcp:
            # Status 200 for any reason: another one would end the client's session.
            own = self._judgement.in_protocol_format(outcome._replace(status=403), evaluation)
            if own is not None:
                status, body = own.status, own.body
        if not body:
            members = error_body(403, shown.decision.reason) | {"decision": evaluation}
            body = orjson.dumps(members)
        return denied(PERMISSION_DENIED, status, headers, body, _metadata(shown))

    def _undecided(self, error: SluiceError) -> bytes:
        if isinstance(error, Unauthorized):
            code, status, headers = UNAUTHENTICATED, 401, [_JSON]
        elif isinstance(error, Forbidden):
            code, status, headers = PERMISSION_DENIED, 403, [_JSON]
        else:
            code, status, headers = UNAVAILABLE, 503, [_JSON, _RETRY]
        self._checks.add(str(code))
        body = orjson.dumps(error_body(status, error.message, error.details))
        return denied(code, status, headers, body)


def _unreadable(fault: str) -> CheckedRequest:
    """Return the checked request for a check that can't be read, with the reason `fault`."""
    return CheckedRequest("", "", _NO_HEAD, None, "", fault)


def _attributed(headers: DoorHeaders) -> tuple[_Attributed, ...]:
    return tuple(
        _Attributed(name.lower().encode(), extension)
        for name, extension in (
            (headers.user, "sluice_user"),
            (headers.session, "sluice_session"),
            (headers.task, "sluice_task"),
        )
    )


def _body(check: CheckRequest) -> tuple[bytes | None, str]:
    """Return the body if all of it is here; otherwise None and the reason. Raises `Malformed` if it
    is larger than any body that is judged."""
    body = check.body
    length = 0 if body is None else len(body)
    if length > _MAX_BODY:
        raise Malformed(f"the body is larger than {_MAX_BODY} bytes")
    if body is None:
        return None, NO_BODY["envoy_grpc"]
    return (body, "") if _is_whole(check, length) else (None, PARTIAL_BODY)


def _is_whole(check: CheckRequest, length: int) -> bool:
    """Return whether the `length` bytes are certainly the whole body: some field of the check says
    so, and no field contradicts it."""
    of_whole = {PARTIAL_FLAG: b"false", b"content-length": b"%d" % length}
    said = [field for field in check.fields if field[0] in of_whole]
    if check.size > length or any(of_whole[name] != value.lower() for name, value in said):
        return False
    if check.size < 0:
        # The gateway's count says that the length is unknown. The flag is then not the gateway's
        # own: agentgateway sends none, and passes on the client's.
        return any(name != PARTIAL_FLAG for name, _ in said)
    return check.size == length or bool(said)


def _metadata(shown: RecordedDecision) -> bytes:
    decision = shown.decision
    check = "none" if decision.decision == "ALLOW" else denied_by(decision)
    return dynamic_metadata(shown.event_id, decision.decision, decision.policy_name, check)
