"""Calls the control API: one address, one key, JSON. A redirect is treated as any other answer and
never followed: the key would go with it."""

import asyncio
import os
import ssl
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    TCPConnector,
)

from sidecar.control.identity import KeyHolder, NoKey
from sidecar.http.tls_contexts import client_context
from sidecar.settings.model import UpstreamTls

MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""The most bytes read of an answer. A page of documents is below 1 MiB, with rare exceptions."""

CONNECT_SECONDS = 2.0
KEY_HEADER = "X-API-Key"


class ControlUnavailable(Exception):
    """the control API gave no usable answer. `status` is its HTTP status, None if there was no
    answer; `after` is its `Retry-After` in seconds, None if it sent none"""

    def __init__(
        self,
        message: str,
        status: int | None = None,
        answer: Any = None,
        after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answer = answer
        self.after = after


class ControlClient:
    """An HTTP client of the control API. Enter its context before use."""

    def __init__(self, address: str, key: str | KeyHolder, tls: UpstreamTls | None = None) -> None:
        """Make a client of the control API at `address`. `tls` configures an `https://` address;
        without it, the system's certificate authorities are trusted."""
        self._address = address.rstrip("/")
        self._key = KeyHolder(key) if isinstance(key, str) else key
        self._tls = tls or UpstreamTls()
        self._session: ClientSession | None = None

    def __repr__(self) -> str:
        return f"ControlClient({self._address!r})"

    async def __aenter__(self) -> "ControlClient":
        tls = client_context(self._tls) if self._address.startswith("https://") else True
        # No cookies and no proxy from the environment: nothing but our address gets the key.
        self._session = ClientSession(
            # Polls, claims and deliveries are few, but a claim must not queue behind a long poll.
            connector=TCPConnector(limit=32, keepalive_timeout=30, ssl=tls),
            cookie_jar=DummyCookieJar(),
            headers={"User-Agent": "sluice-sidecar"},
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(self, path: str, query: dict[str, str], *, seconds: float) -> dict[str, Any]:
        """Send a GET, and return the JSON object of an answer with status 200. Raises
        `ControlUnavailable` for any other answer, or after `seconds`."""
        return await self._call("GET", path, query, None, seconds, await self._own_key(seconds))

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        seconds: float,
        encoding: str | None = None,
        with_key: bool = True,
    ) -> dict[str, Any]:
        """Send `body` in a POST, and return the answer like `get`. The body is JSON in the content
        encoding `encoding`. The sidecar's key is left out if `with_key` is False."""
        headers = await self._own_key(seconds) if with_key else {}
        headers["Content-Type"] = "application/json"
        if encoding is not None:
            headers["Content-Encoding"] = encoding
        return await self._call("POST", path, {}, body, seconds, headers)

    async def _own_key(self, seconds: float) -> dict[str, str]:
        """Return the header with the sidecar's key. Raises `ControlUnavailable` if the sidecar has
        no key."""
        try:
            # Asked for each request: an enrolled sidecar's key is renewed while it runs.
            return {KEY_HEADER: await self._key.current(seconds)}
        except NoKey as missing:
            raise ControlUnavailable(f"the control API was not asked: {missing}") from None

    async def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: bytes | None,
        seconds: float,
        headers: dict[str, str],
    ) -> dict[str, Any]:
        assert self._session is not None
        try:
            async with self._session.request(
                method,
                self._address + path,
                params=query,
                data=body,
                headers=headers,
                allow_redirects=False,  # the key would go along
                server_hostname=self._tls.server_name,
                timeout=ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
            ) as answer:
                status, after = answer.status, _seconds(answer.headers.get("Retry-After"))
                # Read up to the limit and no further, whatever `Content-Length` says.
                raw = await answer.content.read(MAX_ANSWER_BYTES + 1)
                while len(raw) <= MAX_ANSWER_BYTES and (chunk := await answer.content.readany()):
                    raw += chunk
        # Caught before `OSError`, of which it is a subclass.
        except TimeoutError:
            why = f"the control API did not answer within {seconds:g} s"
            raise ControlUnavailable(why) from None
        except (ClientError, OSError, asyncio.IncompleteReadError) as error:
            why = f"the control API can't be reached: {_describe(error)}"
            raise ControlUnavailable(why) from error
        if KEY_HEADER in headers and status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            self._key.on_refused()
        return _parse(status, raw, after)


def _describe(error: Exception) -> str:
    """Return a description of the failure. aiohttp's own text repeats the address, and mentions TLS
    even over plain HTTP."""
    if isinstance(error, ClientConnectorCertificateError):
        found = error.certificate_error
        shown = found.verify_message if isinstance(found, ssl.SSLCertVerificationError) else found
        return f"its certificate is not trusted: {shown}"
    cause = error.os_error if isinstance(error, ClientConnectorError) else error
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno:
        # Positive numbers are errno values; those of name resolution are negative.
        text = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror
        return (text or str(cause)).lower()
    return str(cause) or type(cause).__name__


def _seconds(text: str | None) -> float | None:
    """Return the seconds in a `Retry-After` header; None if it has another form. The control API
    sends no dates."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _parse(status: int, raw: bytes, after: float | None) -> dict[str, Any]:
    if len(raw) > MAX_ANSWER_BYTES:
        why = f"the control API's answer exceeds {MAX_ANSWER_BYTES} bytes"
        raise ControlUnavailable(why, status)
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        answer = None  # a gateway's error page, say: its status tells more than its text
    if status != 200:
        said = answer.get("message") if isinstance(answer, dict) else None
        why = f"the control API answered {status}: {said or 'no reason'}"
        raise ControlUnavailable(why, status, answer, after)
    if not isinstance(answer, dict):
        raise ControlUnavailable("the control API's answer is not a JSON object", status)
    return answer
