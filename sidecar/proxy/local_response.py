"""Answers of the proxy's own, in one piece: denials and errors (contract, section 5). What comes
from the data source is `relay.py`'s to pass on."""

from http import HTTPStatus

import orjson

from policies.evaluate import Decision
from policies.ground.errors import SluiceError, error_body
from sidecar.http.body_budget import BodyBudgetExceeded
from sidecar.protocols.messages import FetchedResponse

Fields = tuple[tuple[bytes, bytes], ...]

_JSON = (b"Content-Type", b"application/json")
_OWN = ((b"Cache-Control", b"no-store"), (b"Server", b"sluice"))


def fields_of_event(event_id: str, *, let_through: bool = False) -> Fields:
    """What the answer to a request that went on tells of its decision; `let_through` is a denial by
    a source whose mode is `report`."""
    told = ((b"X-Sluice-Event-Id", event_id.encode()),)
    return (*told, (b"X-Sluice-Decision", b"DENY")) if let_through else told


class LocalResponse:
    """An answer that is still to be written. `close` ends the connection with it."""

    __slots__ = ("body", "close", "decision", "fields", "keep_alive", "status")

    def __init__(self, status: int, fields: Fields, body: bytes, *, close: bool = False) -> None:
        self.status = status
        self.fields = fields
        self.body = body
        self.close = close
        self.decision: dict[str, str] = {}
        """Of a denial, the four fields of an evaluation."""
        self.keep_alive = False
        """Set when it is written: whether the connection carries on."""

    @classmethod
    def of_error(
        cls, error: SluiceError, *, event: Fields = (), close: bool = False
    ) -> "LocalResponse":
        """`event` tells of the decision by which it went on that then failed."""
        if isinstance(error, BodyBudgetExceeded):
            event = (*event, (b"Retry-After", b"%d" % error.retry_after))
        return cls(error.status, (_JSON, *event, *_OWN), error.encoded(), close=close)

    @classmethod
    def of_denial(
        cls, status: int, decision: Decision, event_id: str, *, close: bool = False
    ) -> "LocalResponse":
        """The error body with one member more: `decision`, the four fields of an evaluation."""
        body = error_body(status, decision.reason)
        told_of = {
            "decision": decision.decision,
            "policy_name": decision.policy_name,
            "reason": decision.reason,
            "event_id": event_id,
        }
        body["decision"] = told_of
        told = (
            (b"X-Sluice-Decision", decision.decision.encode()),
            (b"X-Sluice-Event-Id", event_id.encode()),
        )
        reply = cls(status, (_JSON, *told, *_OWN), orjson.dumps(body), close=close)
        reply.decision = told_of
        return reply

    def in_words_of(self, own: FetchedResponse) -> "LocalResponse":
        """The same denial as a data source's protocol tells of one."""
        told = [field for field in self.fields if field != _JSON]
        return LocalResponse(own.status, (*own.fields, *told), own.body, close=self.close)

    def end(self) -> None:
        """It is the last on its connection."""
        self.close = True

    def encode(self, *, keep_alive: bool, empty: bool, old: bool) -> bytes:
        """The whole answer; without its body where `empty` (to a HEAD). `old` is HTTP/1.0, where
        keeping the connection has to be said."""
        self.keep_alive = keep_alive and not self.close
        lines = [b"HTTP/1.1 %d %b" % (self.status, HTTPStatus(self.status).phrase.encode())]
        lines += [b"%b: %b" % field for field in self.fields]
        lines.append(b"Content-Length: %d" % len(self.body))
        if not self.keep_alive:
            lines.append(b"Connection: close")
        elif old:
            lines.append(b"Connection: keep-alive")
        return b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if empty else self.body)


class ResponseSent:
    """An answer that is on its way already; `status` 0 where none was begun."""

    __slots__ = ("keep_alive", "status")

    def __init__(self, *, keep_alive: bool, status: int = 0) -> None:
        self.keep_alive = keep_alive
        self.status = status

    def end(self) -> None:
        """It is the last on its connection."""
        self.keep_alive = False
