"""Responses that the proxy makes itself: denials and errors, in the data source's own format if it
has one. An outage of the sidecar is a 503 and not a 403: the agent may try again.

`messages/response_relay.py` relays the data source's responses.
"""

from http import HTTPStatus

import orjson

from policies.evaluate import Decision
from policies.ground.errors import SluiceError, Unavailable, UpstreamFailed, error_body
from sidecar.http.grpc.status import INTERNAL, Failure
from sidecar.http.headers import ResponseHead
from sidecar.http.request_body import BodyBudgetExceeded
from sidecar.protocols.protocol import RefusalResponse, RoutedRequest, SourceProtocol, with_event
from sidecar.recorder import is_outage

Fields = tuple[tuple[bytes, bytes], ...]

_JSON = (b"Content-Type", b"application/json")
_EVENT_ID = b"X-Sluice-Event-Id"
_UNAVAILABLE = 503
_RETRY_SECONDS = 5
"""The value of `Retry-After`, in seconds, when the sidecar can't decide or record: a policy set or
a record that lags usually catches up within a few seconds."""
_RETRY_AFTER = b"Retry-After"
_OWN_FIELDS = ((b"Cache-Control", b"no-store"), (b"Server", b"sluice"))


def event_fields(event_id: str, *, report_only: bool = False) -> Fields:
    """Return the header fields that name the decision on a request that was forwarded.
    `report_only` means that a source in mode `report` forwarded it although it was denied."""
    fields = ((_EVENT_ID, event_id.encode()),)
    return (*fields, (b"X-Sluice-Decision", b"DENY")) if report_only else fields


class LocalResponse:
    """A response made by the proxy that has not been written yet. With `close`, the connection ends
    after it."""

    __slots__ = ("body", "close", "decision", "fields", "message", "status", "withheld")

    def __init__(
        self, status: int, fields: Fields, body: bytes, *, message: str = "", close: bool = False
    ) -> None:
        self.status = status
        self.message = message
        self.fields = fields
        self.body = body
        self.close = close
        self.withheld = False
        """True if a response of the data source is withheld because it can't be judged."""
        self.decision: dict[str, str] = {}
        """For a denial, the four fields of the evaluation: `decision`, `policy_name`, `reason` and
        `event_id`. Otherwise empty."""

    @classmethod
    def of_error(
        cls, error: SluiceError, *, event: Fields = (), close: bool = False
    ) -> "LocalResponse":
        """Return the response to a request that failed with `error`. If the request failed after
        its decision, `event` are the header fields about it, and the message ends with the event's
        id."""
        message, body = error.message, error.body()
        for name, value in event:
            if name == _EVENT_ID:
                body["message"] = message = with_event(message, value.decode())
        if isinstance(error, Unavailable):
            # Nothing was decided, so the agent may try again.
            seconds = _RETRY_SECONDS
            if isinstance(error, BodyBudgetExceeded):
                seconds = error.retry_after
            event = (*event, _retry_after(seconds))
        fields = (_JSON, *event, *_OWN_FIELDS)
        response = cls(error.status, fields, orjson.dumps(body), message=message, close=close)
        response.withheld = isinstance(error, UpstreamFailed) and not error.incomplete
        return response

    @classmethod
    def of_denial(
        cls, status: int, decision: Decision, event_id: str, *, close: bool = False
    ) -> "LocalResponse":
        """Return the response to a denied request: the usual error body, plus a member `decision`
        with the four fields of the evaluation. Its status is 503 instead of `status` if an outage
        is the reason for the denial."""
        outage = is_outage(decision)
        if outage:
            status = _UNAVAILABLE
        body = error_body(status, decision.reason)
        evaluation = {
            "decision": decision.decision,
            "policy_name": decision.policy_name,
            "reason": decision.reason,
            "event_id": event_id,
        }
        body["decision"] = evaluation
        fields: Fields = (
            _JSON,
            (b"X-Sluice-Decision", decision.decision.encode()),
            (_EVENT_ID, event_id.encode()),
            *_OWN_FIELDS,
        )
        if outage:
            fields = (*fields, _retry_after(_RETRY_SECONDS))
        encoded = orjson.dumps(body)
        response = cls(status, fields, encoded, message=decision.reason, close=close)
        response.decision = evaluation
        return response

    def in_format_of(
        self, protocol: SourceProtocol, request: RoutedRequest | None
    ) -> "LocalResponse":
        """Return the same response in the format of the data source's protocol; unchanged if the
        protocol has none. `request` is None if it could not be read far enough."""
        refusal = RefusalResponse.of(self.status, self.message, self.decision)
        refusal = refusal._replace(withheld=self.withheld)
        own = protocol.render_refusal(request, refusal)
        if own is None:
            return self
        # The other format brings a content type of its own.
        fields = [field for field in self.fields if field != _JSON]
        response = LocalResponse(
            own.status, (*own.fields, *fields), own.body, message=self.message, close=self.close
        )
        response.decision, response.withheld = self.decision, self.withheld
        return response

    def end_connection(self) -> None:
        """Make this the last response on its connection."""
        self.close = True

    def encode(self, *, keep_alive: bool, omit_body: bool, http10: bool) -> bytes:
        """Return the whole response as bytes, without its body if it answers a HEAD (`omit_body`).
        The connection stays open if `keep_alive` is true and `close` is not. The header
        `Connection` says so where it is not the default: HTTP/1.0 (`http10`) closes connections
        unless told otherwise, HTTP/1.1 keeps them."""
        lines = [b"HTTP/1.1 %d %b" % (self.status, HTTPStatus(self.status).phrase.encode())]
        lines += [b"%b: %b" % field for field in self.fields]
        # For a HEAD too: it is told the length that a GET would get (RFC 9110 section 8.6).
        lines.append(b"Content-Length: %d" % len(self.body))
        if self.close or not keep_alive:
            lines.append(b"Connection: close")
        elif http10:
            lines.append(b"Connection: keep-alive")
        return b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if omit_body else self.body)

    def split(self) -> tuple[ResponseHead, bytes]:
        """Return the head and the body, as `sidecar.http.server.request.Response` describes."""
        lines = b"".join([b"%b: %b\r\n" % field for field in self.fields])
        return ResponseHead(self.status, b"", lines, b"%d" % len(self.body)), self.body

    def failure(self) -> Failure:
        """Return the refusal as gRPC tells it."""
        decision, message = self.decision, self.message
        if decision:
            message = with_event(message, decision["event_id"])
        waits = [int(value) for name, value in self.fields if name == _RETRY_AFTER]
        return Failure(
            self.status,
            message,
            decision.get("policy_name", ""),
            {name: decision[name] for name in ("decision", "event_id") if name in decision},
            waits[0] if waits else 0,
            INTERNAL if self.withheld else None,
        )


def _retry_after(seconds: int) -> tuple[bytes, bytes]:
    return (_RETRY_AFTER, b"%d" % seconds)
