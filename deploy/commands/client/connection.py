"""Requests to a control API: JSON over HTTP or HTTPS, without proxies or redirects.

A key is sent only to the address that the operator named. Knows HTTP and the error body
(`CONTRACT.md`, Errors); knows no command.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from policies.ground.slow_answer import AFTER, waiting_for

if TYPE_CHECKING:
    import ssl

SECONDS = 30.0
"""How long a request waits for the connection, and then for each part of the response."""
MAX_RESPONSE = 64 * 1024 * 1024
"""In bytes. A server that is not a control API may send without end."""
PAGE = 1000
"""The API's limit for the rows of a page."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class ApiUnreachable(Exception):
    """no usable response; the message says from where, and why"""


class RequestRefused(Exception):
    """a response other than 200 or 201"""

    def __init__(self, request: str, response: ApiResponse) -> None:
        body = response.body if isinstance(response.body, dict) else {}
        self.status = response.status
        self.reason = str(body.get("error") or http.client.responses.get(response.status, ""))
        # A gateway in front of the API sends error pages of its own.
        self.message = str(body.get("message") or "the response is not from a control API")
        self.details = str(body.get("details") or "")
        self.request_id = response.headers.get("x-request-id")
        self.retry_after = response.headers.get("retry-after")
        super().__init__(f"`{request}` returned {self.status} {self.reason}: {self.message}")


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A status, the JSON body (None if it is not JSON), and the headers by lower-case name."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def revision(self) -> int | None:
        """The revision of the policy set that a write made; None for other responses."""
        text = self.headers.get("x-sluice-revision", "")
        return int(text) if text.isdecimal() else None

    def next(self) -> dict[str, str] | None:
        """The query of the next page (RFC 8288); None after the last page."""
        # Behind a gateway, the header may name another host, so only its query is used.
        target, _, parameters = self.headers.get("link", "").partition(">")
        if 'rel="next"' not in parameters:
            return None
        return dict(parse_qsl(urlsplit(target.lstrip(" <")).query, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class ApiConnection:
    """Sends requests to one control API with one key. Opens a connection for each request, since
    the control API may restart between two."""

    url: str
    """`http[s]://host[:port]`, with a path if a gateway serves the API below one."""
    key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
    ) -> ApiResponse:
        """The response, if its status is 200 or 201. Raises `RequestRefused` for other statuses,
        and `ApiUnreachable` if there is no response."""
        # A gateway may serve the API below a path; `path` is relative to that.
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
        response = self._exchange(method, target, raw, sent, seconds)
        if response.status not in (200, 201):
            raise RequestRefused(f"{method} {path}", response)
        return response

    @contextmanager
    def stream(
        self, path: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """A response of status 200 that is read piece by piece, as it was sent: compressed if
        `headers` allow. Raises like `request`; reading it raises what `http.client` does."""
        given = {key: value for key, value in query.items() if value is not None}
        target = f"{urlsplit(self.url).path.rstrip('/')}{path}?{urlencode(given)}"
        sent = {**headers, **({} if self.key is None else {"X-API-Key": self.key})}
        connection = self._open(SECONDS)
        try:
            try:
                with self._announced(SECONDS):
                    connection.request("GET", target, None, sent)
                    response = connection.getresponse()
                refused = None if response.status == 200 else response.read(MAX_RESPONSE)
            except (OSError, http.client.HTTPException) as error:
                raise ApiUnreachable(f"no response from `{self.url}`: {_cause(error)}") from error
            if refused is not None:
                raise RequestRefused(f"GET {path}", _response(response, refused))
            yield response
        finally:
            connection.close()

    def pages(
        self, path: str, query: Mapping[str, Any], most: int | None
    ) -> Iterator[list[dict[str, Any]]]:
        """The rows of a list, page by page: at most `most` rows, or all if `most` is None."""
        # The `Link` header's query repeats the filters beside the cursor; only `limit` changes.
        left = most
        asked: dict[str, Any] | None = {**query}
        while asked is not None and left != 0:
            limit = PAGE if left is None else min(left, PAGE)
            response = self.request("GET", path, {**asked, "limit": limit})
            rows: list[dict[str, Any]] = response.body
            yield rows
            left = None if left is None else left - len(rows)
            asked = response.next()

    def _exchange(
        self, method: str, target: str, raw: bytes | None, headers: dict[str, str], seconds: float
    ) -> ApiResponse:
        connection = self._open(seconds)
        try:
            with self._announced(seconds):
                connection.request(method, target, raw, headers)
                response = connection.getresponse()
            text = response.read(MAX_RESPONSE + 1)  # one byte more, to notice a longer response
        except (OSError, http.client.HTTPException) as error:
            raise ApiUnreachable(f"no response from `{self.url}`: {_cause(error)}") from error
        finally:
            connection.close()
        if len(text) > MAX_RESPONSE:
            raise ApiUnreachable(
                f"the response of `{self.url}` is larger than {MAX_RESPONSE} bytes"
            )
        return _response(response, text)

    @contextmanager
    def _announced(self, seconds: float) -> Iterator[None]:
        """Say on standard error that the response is late, while it is."""
        # What is over `SECONDS` is for a request that the API is asked to hold open.
        after = AFTER + max(0.0, seconds - SECONDS)
        text = f"sluice: {waiting_for(self.url, seconds - after)}"
        # A thread of its own, since connecting and reading both block this one.
        timer = threading.Timer(after, print, (text,), {"file": sys.stderr, "flush": True})
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _open(self, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        # Not `urllib`: it honours proxy variables and follows redirects, and would send the key
        # along.
        if self.tls is None:
            return http.client.HTTPConnection(parts.hostname, parts.port, seconds)
        return http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=seconds, context=self.tls
        )


def _response(response: http.client.HTTPResponse, text: bytes) -> ApiResponse:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return ApiResponse(response.status, _json(text), headers)


def segment(text: str) -> str:
    """An identifier as one path segment. Escapes slashes, since it may be a SPIFFE id."""
    return quote(text, safe="")


def _cause(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        reason = getattr(error, "verify_message", "") or "its certificate can't be verified"
        return f"{reason}; --ca FILE or SLUICE_CA names the authority of its certificate"
    if isinstance(error, TimeoutError):
        return "the request timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None  # a gateway's page, for instance; the status says what happened
