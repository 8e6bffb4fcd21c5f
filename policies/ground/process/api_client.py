"""Sends requests to one control API, with a key from a file.

Follows no redirect and no proxy, so that the key goes nowhere else. No error message holds the key.
"""

import http.client
import json
import os
import re
import ssl
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from policies.ground.slow_answer import AFTER, waiting_for

MAX_KEY = 4096


class ServiceUnusable(Exception):
    """a service, or the arguments that name it, that can't be used; the message says why"""


def read_key(name: str) -> str:
    """The API key in a file that only its owner can read, or the admin key in the control API's
    `first-start.json`. Raises `ServiceUnusable`, never with the key."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            # The open file, not its path: another file could take its place before it is read. A
            # pipe passes, such as `<(pass show sluice)`.
            status = os.fstat(file.fileno())
            # A mounted Kubernetes Secret belongs to root, and the pod's own group reads it.
            forbidden = 0o037 if status.st_uid == 0 and os.geteuid() else 0o077
            if stat.S_ISREG(status.st_mode) and status.st_mode & forbidden:
                raise ServiceUnusable(
                    f"--key-file `{path}` is accessible to other users: chmod 600 it"
                )
            text = file.read(MAX_KEY + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it does not hold a key"
        raise ServiceUnusable(f"--key-file `{path}` can't be read: {why}") from error
    if text.startswith("{"):  # no key begins with it
        try:
            text = str(json.loads(text)["admin_key"])
        except (ValueError, KeyError):
            raise ServiceUnusable(f"--key-file `{path}` is JSON without an `admin_key`") from None
    return usable_key(text, f"--key-file `{path}`")


def usable_key(text: str, origin: str) -> str:
    """`text`, if it can be sent as a header: a line break would inject another header."""
    if not text or len(text) > MAX_KEY or not text.isascii() or not text.isprintable():
        raise ServiceUnusable(f"{origin} does not hold a key")
    return text


SECONDS = 60.0
"""How long a request waits for the connection, and then for each part of the answer."""
MAX_ANSWER = 256 * 1024 * 1024
"""In bytes. A server that is not a control API may send without end."""
MAX_ERROR = 64 * 1024
_NEXT = re.compile(r'<([^>]*)>; rel="next"')


class RequestRefused(ServiceUnusable):
    """an answer other than 2xx. `error`, `message` and `details` are those of the API's error body
    (`CONTRACT.md`, Errors); empty if the answer is not the API's."""

    def __init__(self, status: int, text: bytes) -> None:
        try:
            body = json.loads(text)
        except ValueError:
            body = None  # a gateway's page, for instance
        members = body if isinstance(body, dict) else {}
        self.status = status
        self.error, self.message, self.details = (
            str(members.get(name) or "") for name in ("error", "message", "details")
        )
        said = self.message or _one_line(text.decode(errors="replace"))[:300]
        lines = map(_one_line, self.details.splitlines())
        super().__init__("\n  ".join([f"the service answered {status}: {_one_line(said)}", *lines]))


def authority(option: str | None, url: str, environ: Mapping[str, str]) -> str | None:
    """The file with the authority to trust: that of `--ca`, else of SLUICE_CA. That variable may be
    set for other commands too, so it is ignored for an address that is not https."""
    if option is not None or not url.lower().startswith("https:"):
        return option
    return environ.get("SLUICE_CA") or None


class RemoteApi:
    """A control API at `url`, `http[s]://host[:port][/path]`."""

    def __init__(self, url: str, key: str, ca: str | None = None) -> None:
        """Raises `ServiceUnusable`, without the address, which may contain a password."""
        parts = urlsplit("")
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or parts.username is not None or parts.query or parts.fragment:
            raise ServiceUnusable("--url is not an address such as https://sluice.example:8700")
        self._host, self._port = str(parts.hostname), parts.port
        self._url = url
        self._path, self._key = parts.path.rstrip("/"), key
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise ServiceUnusable(f"--ca (SLUICE_CA) can't be used: {error}") from error
        elif ca is not None:
            raise ServiceUnusable("--ca applies to https:// only")

    def get(self, path: str) -> "ResponseBody":
        """The body of a 200, streamed. Raises `ServiceUnusable` for every other answer, and if
        there is none."""
        connection = self._connection(SECONDS)
        try:
            with self._announced(SECONDS):
                response = self._sent(connection, "GET", path, None, {"Accept-Encoding": "gzip"})
            if response.status != 200:
                raise RequestRefused(response.status, response.read(MAX_ERROR))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServiceUnusable(f"no answer from the service: {_cause(error)}") from error
        except ServiceUnusable:
            connection.close()
            raise
        return ResponseBody(connection, response)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: object = None,
        seconds: float = SECONDS,
    ) -> Any:
        """The JSON that the service answers; None where it answers nothing. What is None in
        `query` is left out. Raises `RequestRefused` unless the status is 2xx, `ServiceUnusable` if
        there is no usable answer."""
        return self._asked(method, path, query, body, seconds)[0]

    def pages(self, path: str, query: Mapping[str, str | None]) -> Iterator[list[Any]]:
        """The pages of a list. Raises as `ask` does."""
        wanted: Mapping[str, str | None] | None = query
        while wanted is not None:
            rows, link = self._asked("GET", path, wanted, None, SECONDS)
            yield rows
            # Its query alone: a gateway in front of the service may have put the path elsewhere.
            found = _NEXT.match(link)
            wanted = None if found is None else dict(parse_qsl(urlsplit(found[1]).query))

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None,
        body: object,
        seconds: float,
    ) -> tuple[Any, str]:
        """What `ask` answers, and the header `Link`."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        raw = None if body is None else json.dumps(body).encode()
        headers = {} if raw is None else {"Content-Type": "application/json"}
        connection = self._connection(seconds)
        try:
            with self._announced(seconds):
                response = self._sent(connection, method, target, raw, headers)
            text = response.read(MAX_ANSWER + 1)  # one byte more, to notice a longer answer
        except (OSError, http.client.HTTPException) as error:
            raise ServiceUnusable(f"no answer from the service: {_cause(error)}") from error
        finally:
            connection.close()
        if not 200 <= response.status < 300:
            raise RequestRefused(response.status, text[:MAX_ERROR])
        if len(text) > MAX_ANSWER:
            raise ServiceUnusable(f"the service's answer is larger than {MAX_ANSWER} bytes")
        try:
            return json.loads(text) if text else None, response.headers.get("Link", "")
        except ValueError:
            raise ServiceUnusable("the answer is not JSON: is --url a control API?") from None

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        raw: bytes | None,
        headers: dict[str, str],
    ) -> http.client.HTTPResponse:
        try:
            connection.request(
                method, self._path + target, raw, {"X-API-Key": self._key, **headers}
            )
        except (BrokenPipeError, ConnectionResetError):
            # The service may refuse a body before all of it has arrived: its answer says why.
            if raw is None or connection.sock is None:
                raise
        return connection.getresponse()

    @contextmanager
    def _announced(self, seconds: float) -> Iterator[None]:
        """Say on standard error that the response is late, while it is."""
        text = f"sluice: {waiting_for(self._url, seconds - AFTER)}\n"
        # A thread of its own, since connecting and reading both block this one.
        timer = threading.Timer(AFTER, sys.stderr.write, (text,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        # Not `urllib`: it honours proxy variables and follows redirects, and would send the key
        # along.
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=seconds, context=self._tls
        )


class ResponseBody:
    """A body as it arrives. A connection that breaks is `ServiceUnusable`: it says nothing
    about what was asked."""

    def __init__(self, connection: http.client.HTTPConnection, response: Any) -> None:
        self._connection, self._response = connection, response

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._response.read(size if size >= 0 else None))
        except (OSError, http.client.HTTPException) as error:
            raise ServiceUnusable(f"the service's answer broke off: {_cause(error)}") from error

    def __enter__(self) -> "ResponseBody":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
