"""A client of the control API: finds its address, the key and the TLS files, and sends requests.

Follows no redirect and uses no proxy, so that the key goes only to the address that the operator
named. No error message holds the key. Knows HTTP and the error body (`CONTRACT.md`, Errors); knows
no command.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from policies.ground.log_line import printable

if TYPE_CHECKING:
    # Both are imported late below: `http.client` loads `ssl`, and many commands send no request.
    import http.client
    import ssl

URL = "http://127.0.0.1:8700"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_KEY = 4096


class UnusableArguments(Exception):
    """arguments, environment or files that can't be used"""


class ServiceUnusable(Exception):
    """no usable response; the message says from where, and why"""


def connect(
    environ: Mapping[str, str],
    url: str | None,
    key_file: str | None,
    ca: str | None,
    cert: str | None = None,
    cert_key: str | None = None,
) -> ControlApiClient:
    """Return a client for the address, key and TLS files that a command's options give; the
    environment fills in what they leave out. Opens no connection. Raises `UnusableArguments`, whose
    message never contains a key."""
    url = url or environ.get("SLUICE_URL") or URL
    try:
        parts = urlsplit(url)
        # `port` raises, too, if the number is over 65535.
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        parts, fits = urlsplit(""), False
    # A query or a fragment would end up between the address and each request's path.
    if not fits or parts.username is not None or parts.query or parts.fragment:
        # The message does not repeat the address, which may contain a password.
        raise UnusableArguments(f"--url or SLUICE_URL is not an address such as {URL}")
    key, origin = _find_key(key_file, environ)
    tls = None
    if parts.scheme == "https":
        tls = _tls(ca or environ.get("SLUICE_CA") or None, cert, cert_key)
    else:
        # SLUICE_CA may be set for other commands, whose address is https.
        for name, given in (("ca", ca), ("cert", cert), ("cert-key", cert_key)):
            if given:
                raise UnusableArguments(
                    f"--{name} applies only to https://, but the address is `{url}`"
                )
        if key is not None and parts.hostname not in LOOPBACK:
            sys.stderr.write(f"sluice: warning: sending the key unencrypted to `{url}`\n")
    return ControlApiClient(url, key, tls, origin)


def _find_key(option: str | None, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the key in the file of `--key-file`, else of SLUICE_KEY_FILE, else in SLUICE_API_KEY;
    None if none is given. Also return where it came from, for messages."""
    # Files come first: every child process inherits a key in the environment.
    if name := option or environ.get("SLUICE_KEY_FILE"):
        return _usable(_from_file(Path(name)), f"`{name}`"), f"the key in `{name}`"
    if text := environ.get("SLUICE_API_KEY"):
        return _usable(text.strip(), "SLUICE_API_KEY"), "the key in SLUICE_API_KEY"
    return None, "no key"


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # Check the open file: a file checked by its path could be replaced before it is read.
            # A pipe passes: `--key-file <(pass show sluice)` leaves no file behind.
            status = os.fstat(file.fileno())
            mode = status.st_mode
            # A mounted Kubernetes Secret belongs to root, and the pod's own group reads it.
            forbidden = 0o037 if status.st_uid == 0 and os.geteuid() else 0o077
            if stat.S_ISREG(mode) and mode & forbidden:
                raise UnusableArguments(
                    f"key file `{path}` is accessible to other users (mode "
                    f"{stat.S_IMODE(mode):04o}); run `chmod 600 {path}`"
                )
            text = file.read(MAX_KEY + 1).decode("ascii").strip()
    except OSError as error:
        raise UnusableArguments(f"key file `{path}` can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UnusableArguments(f"key file `{path}` does not contain a key") from None
    if not text.startswith("{"):  # no key begins with it
        return text
    try:  # `first-start.json`, which the control API writes at its first start
        return str(json.loads(text)["admin_key"])
    except (ValueError, KeyError):
        raise UnusableArguments(f"`{path}` is JSON without an `admin_key`") from None


def _usable(text: str, origin: str) -> str:
    """Return `text` if it can be sent as a header: a line break would inject another header. Raises
    `UnusableArguments` otherwise."""
    if not text or len(text) > MAX_KEY or not text.isascii() or not text.isprintable():
        raise UnusableArguments(f"{origin} does not contain a key")
    return text


def _tls(ca: str | None, cert: str | None, cert_key: str | None) -> ssl.SSLContext:
    import ssl

    if cert_key and not cert:
        raise UnusableArguments("--cert-key needs --cert")
    at_fault = "--ca (SLUICE_CA)"
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            at_fault = "--cert and --cert-key"
            context.load_cert_chain(cert, cert_key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise UnusableArguments(f"{at_fault} can't be used: {why}") from error
    return context


NOTICE_SECONDS = 3.0
"""The seconds without a response after which a command says that it is waiting."""
TIMEOUT_SECONDS = 60.0
"""The seconds for which a request waits for the connection, and then for each part of the
response."""
MAX_RESPONSE = 256 * 1024 * 1024
"""The most bytes of a response that are read: a server that is not a control API may send without
end."""
MAX_EXCERPT = 300
PAGE = 1000
"""The most rows that the API returns in one page."""


class RequestRefused(ServiceUnusable):
    """a response other than 2xx: the status and the API's message, then a line for each detail"""

    def __init__(self, request: str, response: ApiResponse, key: str | None = None) -> None:
        """Make the message from the refused `request`, such as `GET /v1/policies`, and the
        response. `key` describes the key that was sent; None if none was."""
        from http.client import responses

        body = response.body if isinstance(response.body, dict) else {}
        self.status = response.status
        reason = str(body.get("error") or responses.get(self.status, ""))
        lines = [f"{self.status} {reason}: {body.get('message') or _foreign(response.body)}"]
        lines += str(body.get("details") or "").splitlines()
        lines.append(f"request: {request}")
        if request_id := response.headers.get("x-request-id"):
            lines.append(f"request id: {request_id}")
        lines += self._advice(key, response.headers.get("retry-after"))
        super().__init__("\n  ".join(map(printable, lines)))

    def _advice(self, key: str | None, retry_after: str | None) -> Iterator[str]:
        match self.status:
            case 401 if key is None:
                yield "name a file with your API key with --key-file or SLUICE_KEY_FILE"
            case 401 | 403:
                yield (
                    f"{key} was sent; reading needs a valid key of scope `read` or `admin`, "
                    "changing one of scope `admin`"
                )
            case 429 | 503 if retry_after:
                yield f"try again in {retry_after} s"


def _foreign(body: Any) -> str:
    """Return a description of an error body that has no message, such as a gateway's page."""
    if body is None:
        return "the response is not from a control API"
    text = body if isinstance(body, str) else json.dumps(body)
    return f"the response is not from a control API: {' '.join(text.split())[:MAX_EXCERPT]}"


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A response of the control API: the status, the JSON body (None if it is empty), and the
    headers by lower-case name. If an error's body is not JSON, `body` is its text."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def revision(self) -> int | None:
        """The revision of the policy set that a write produced; None for other responses."""
        text = self.headers.get("x-sluice-revision", "")
        return int(text) if text.isdecimal() else None

    def next(self) -> dict[str, str] | None:
        """Return the query parameters of the next page (RFC 8288); None after the last page."""
        # Behind a gateway, the header may name another host, so only its query is used.
        target, _, parameters = self.headers.get("link", "").partition(">")
        if 'rel="next"' not in parameters:
            return None
        return dict(parse_qsl(urlsplit(target.lstrip(" <")).query, keep_blank_values=True))


class ResponseBody(BufferedIOBase):
    """A response's body, read as it arrives. Reading it raises `ServiceUnusable` if the connection
    breaks."""

    def __init__(self, response: http.client.HTTPResponse, url: str) -> None:
        self.status, self.headers = response.status, response.headers
        self._response, self._url = response, url

    def read(self, size: int | None = -1, /) -> bytes:
        with _reported(f"the response of `{self._url}` broke off"):
            return self._response.read(None if size is None or size < 0 else size)

    def read1(self, size: int = -1, /) -> bytes:
        with _reported(f"the response of `{self._url}` broke off"):
            return self._response.read1(size)


@dataclass(frozen=True, slots=True)
class ControlApiClient:
    """Sends requests to one control API with one key. Opens a connection for each request, since
    the control API may restart between two."""

    url: str
    """The API's address, `http[s]://host[:port]`, with a path if a gateway serves the API below
    one."""
    key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    key_origin: str = "the key"

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        **times: float,
    ) -> ApiResponse:
        """Send a request and return the response, if its status is 2xx. Raises `RequestRefused` for
        other statuses, and `ServiceUnusable` if there is no response, or the responder is not a
        control API. `times` are the `seconds` and `held` of `stream`. Parameters in `query` that
        are None are left out."""
        sent = {"Accept": "application/json", **(headers or {})}
        with self.stream(path, query, sent, method=method, body=body, **times) as response:
            return self._whole(response)

    @contextmanager
    def stream(
        self,
        path: str,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        body: object = None,
        seconds: float = TIMEOUT_SECONDS,
        held: float = 0.0,
    ) -> Iterator[ResponseBody]:
        """Send a request and yield the response to be read piece by piece, as it was sent:
        compressed if `headers` allow. Raises as `request` does. `held` are the seconds for which
        the API was asked to hold the request open; they are added to the time limit `seconds`."""
        # A gateway may serve the API below a path; `path` is relative to that.
        given = {key: value for key, value in (query or {}).items() if value is not None}
        target = f"{urlsplit(self.url).path.rstrip('/')}{path}"
        target += f"?{urlencode(given)}" if given else ""
        sent = {**(headers or {})}
        if self.key is not None:
            sent["X-API-Key"] = self.key
        raw = None
        if body is not None:
            raw = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        connection = self._open(seconds + held)
        try:
            with _reported(f"no response from `{self.url}`"), self._announced(seconds, held):
                try:
                    connection.request(method, target, raw, sent)
                except (BrokenPipeError, ConnectionResetError):
                    # The API may refuse a body before all of it has arrived: its response says why.
                    if raw is None or connection.sock is None:
                        raise
                response = ResponseBody(connection.getresponse(), self.url)
            if not 200 <= response.status < 300:
                key = None if self.key is None else self.key_origin
                raise RequestRefused(f"{method} {path}", self._whole(response), key)
            yield response
        finally:
            connection.close()

    def pages(
        self, path: str, query: Mapping[str, Any], most: int | None = None
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of a list, page by page: at most `most` rows, or all if `most` is None."""
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

    def _whole(self, response: ResponseBody) -> ApiResponse:
        text = response.read(MAX_RESPONSE + 1)  # one byte more, to notice a longer response
        if len(text) > MAX_RESPONSE:
            raise ServiceUnusable(
                f"the response of `{self.url}` is larger than {MAX_RESPONSE} bytes"
            )
        headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            body = json.loads(text) if text else None
        except ValueError:
            if 200 <= response.status < 300:
                raise ServiceUnusable(
                    f"the response of `{self.url}` is not JSON: is it a control API?"
                ) from None
            body = text.decode(errors="replace")
        return ApiResponse(response.status, body, headers)

    @contextmanager
    def _announced(self, seconds: float, held: float) -> Iterator[None]:
        """While the context is open, print on standard error that the response is late, once it
        is."""
        left = f"waiting up to {seconds - NOTICE_SECONDS:.0f} s more"
        text = f"sluice: no response from `{printable(self.url)}` yet; {left}\n"
        # A thread of its own, since connecting and reading both block this one.
        timer = threading.Timer(held + NOTICE_SECONDS, sys.stderr.write, (text,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _open(self, seconds: float) -> http.client.HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self.url)
        assert parts.hostname is not None
        # Not `urllib`: it honours proxy variables and follows redirects, and would send the key
        # along.
        if self.tls is None:
            return HTTPConnection(parts.hostname, parts.port, timeout=seconds)
        return HTTPSConnection(parts.hostname, parts.port, timeout=seconds, context=self.tls)


def first_line(problem: Exception) -> str:
    """Return an error's message without the lines of details that a refusal may have."""
    return str(problem).partition("\n")[0]


def segment(text: str) -> str:
    """Return an identifier percent-encoded as one segment of a URL's path. Slashes are escaped too,
    since it may be a SPIFFE id."""
    return quote(text, safe="")


@contextmanager
def _reported(what: str) -> Iterator[None]:
    """Turn an error of the connection inside the context into `ServiceUnusable`: `what` says what
    failed."""
    from http.client import HTTPException

    try:
        yield
    except (OSError, HTTPException) as error:
        raise ServiceUnusable(f"{what}: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        reason = getattr(error, "verify_message", "") or "its certificate can't be verified"
        return f"{reason}; --ca FILE or SLUICE_CA names the authority of its certificate"
    if isinstance(error, TimeoutError):
        return "the request timed out"
    return printable(getattr(error, "strerror", None) or str(error) or type(error).__name__)
