"""Requests to a control API: JSON over HTTP or HTTPS, never by a proxy, never after a redirect.

A key is sent to the address that the operator named and to no other. Knows HTTP and the error body
of the contract (section 1), no command.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

if TYPE_CHECKING:
    import ssl

SECONDS = 30.0
MAX_ANSWER = 64 * 1024 * 1024
PAGE = 1000
"""The most rows of a page, as the API has it."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ApiUnreachable(Exception):
    """no usable answer came; says from where, and why"""


class RequestRefused(Exception):
    """an answer other than 200 or 201"""

    def __init__(self, answer: ApiResponse) -> None:
        body = answer.body if isinstance(answer.body, dict) else {}
        self.status = answer.status
        self.reason = str(body.get("error") or http.client.responses.get(answer.status, ""))
        self.message = str(body.get("message") or "the answer is not one of a control API")
        self.details = str(body.get("details") or "")
        self.request_id = answer.headers.get("x-request-id")
        self.retry_after = answer.headers.get("retry-after")
        super().__init__(f"{self.status} {self.reason}: {self.message}")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A status, the JSON that came with it (None where it was no JSON), and the headers by their
    names in lower case."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def revision(self) -> int | None:
        """The revision of the policy set that a write made."""
        text = self.headers.get("x-sluice-revision", "")
        return int(text) if text.isdecimal() else None

    def next(self) -> dict[str, str] | None:
        """The query of the next page (RFC 8288); None where this is the last one."""
        target, _, parameters = self.headers.get("link", "").partition(">")
        if 'rel="next"' not in parameters:
            return None
        return dict(parse_qsl(urlsplit(target.lstrip(" <")).query, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class ApiConnection:
    """One control API, by one key. Opens a connection for each request: what it talks to may be
    started again between two."""

    url: str
    """`http[s]://host[:port]`, and a path where a gateway has the API below one."""
    key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> ApiResponse:
        """The answer of 200 or 201; `RequestRefused` for any other, `ApiUnreachable` where none
        came."""
        given = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{urlsplit(self.url).path.rstrip('/')}{path}"
        target += f"?{urlencode(given)}" if given else ""
        sent = {"Accept": "application/json", **(headers or {})}
        if self.key is not None:
            sent["X-API-Key"] = self.key
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        answer = self._exchange(method, target, raw, sent, seconds)
        if answer.status not in (200, 201):
            raise RequestRefused(answer)
        return answer

    def pages(
        self, path: str, query: Mapping[str, Any], most: int | None
    ) -> Iterator[list[dict[str, Any]]]:
        """The rows of a list, a page at a time, `most` in all or every one."""
        left = most
        asked: dict[str, Any] | None = {**query}
        while asked is not None and left != 0:
            limit = PAGE if left is None else min(left, PAGE)
            answer = self.ask("GET", path, {**asked, "limit": limit})
            rows: list[dict[str, Any]] = answer.body
            yield rows
            left = None if left is None else left - len(rows)
            asked = answer.next()

    def _exchange(
        self, method: str, target: str, raw: bytes | None, headers: dict[str, str], seconds: float
    ) -> ApiResponse:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        connection: http.client.HTTPConnection
        if self.tls is None:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, seconds)
        else:
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=seconds, context=self.tls
            )
        try:
            connection.request(method, target, raw, headers)
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnreachable(f"no answer from `{self.url}`: {_cause(error)}") from error
        finally:
            connection.close()
        if len(text) > MAX_ANSWER:
            raise ApiUnreachable(f"the answer of `{self.url}` is larger than {MAX_ANSWER} bytes")
        return ApiResponse(
            answer.status,
            _json(text),
            {name.lower(): value for name, value in answer.getheaders()},
        )


def segment(text: str) -> str:
    """An identifier as one segment of a path: it may be a SPIFFE id, with slashes."""
    return quote(text, safe="")


def _cause(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        told = getattr(error, "verify_message", "") or "its certificate can't be verified"
        return f"{told} (--ca FILE names the authority that its certificate is verified by)"
    if isinstance(error, TimeoutError):
        return "it took too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
