"""Asks a control API with an operator's key: one GET, streamed. Follows no redirect and no proxy,
so that the key goes nowhere else. Knows no route."""

import http.client
import os
import ssl
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from control_api.verifier.outcome import Unusable

SECONDS = 60.0
MAX_KEY = 4096
MAX_ERROR = 4096


def read_key(name: str) -> str:
    """The API key in a file that only its owner can read. Raises `Unusable`, never with the key."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & 0o077:
                raise Unusable(f"--key-file `{path}` is accessible to other users: chmod 600 it")
            text = file.read(MAX_KEY + 1).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it does not hold a key"
        raise Unusable(f"--key-file `{path}` can't be read: {why}") from error
    if not text or len(text) > MAX_KEY or not text.isprintable():
        raise Unusable(f"--key-file `{path}` does not hold a key")
    return text


class RemoteApi:
    """A control API at `url`, `http[s]://host[:port][/path]`."""

    def __init__(self, url: str, key: str, ca: str | None = None) -> None:
        """Raises `Unusable`, without the address, which may contain a password."""
        parts = urlsplit("")
        try:
            parts = urlsplit(url)
            fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            fits = False
        if not fits or parts.username is not None or parts.query or parts.fragment:
            raise Unusable("--url is not an address such as https://sluice.example:8700")
        self._host, self._port = str(parts.hostname), parts.port
        self._path, self._key = parts.path.rstrip("/"), key
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise Unusable(f"--ca can't be used: {error}") from error
        elif ca is not None:
            raise Unusable("--ca applies to https:// only")

    def get(self, path: str) -> "ResponseBody":
        """The body of a 200. Raises `Unusable` for every other answer, and if there is none."""
        connection = self._connection()
        try:
            headers = {"X-API-Key": self._key, "Accept-Encoding": "gzip"}
            connection.request("GET", self._path + path, headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                text = response.read(MAX_ERROR).decode(errors="replace")
                shown = "".join(each if each.isprintable() else " " for each in text)
                raise Unusable(f"the service answered {response.status}: {shown[:300]}")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unusable(f"no answer from the service: {_cause(error)}") from error
        except Unusable:
            connection.close()
            raise
        return ResponseBody(connection, response)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=SECONDS)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=SECONDS, context=self._tls
        )


class ResponseBody:
    """A body as it arrives. A connection that breaks is `Unusable`: it says nothing
    about the log."""

    def __init__(self, connection: http.client.HTTPConnection, response: Any) -> None:
        self._connection, self._response = connection, response

    def read(self, size: int = -1) -> bytes:
        try:
            return bytes(self._response.read(size if size >= 0 else None))
        except (OSError, http.client.HTTPException) as error:
            raise Unusable(f"the service's answer broke off: {_cause(error)}") from error

    def __enter__(self) -> "ResponseBody":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _cause(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
