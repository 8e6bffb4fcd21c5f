"""JSON over HTTP to the child processes: never through a proxy, always with a time limit."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class CallRefused(Exception):
    """an unexpected response: the request, the status and the body"""


class CallResult(NamedTuple):
    """A status, and the JSON body (None if the body is not JSON)."""

    status: int
    body: Any


class Calls:
    """Requests to one address, with one key."""

    def __init__(self, address: str, key: str | None = None, seconds: float = 10.0) -> None:
        self._address = address
        self._headers = {"X-API-Key": key} if key else {}
        self._seconds = seconds

    def request(self, method: str, path: str, body: object = None) -> CallResult:
        """The response, with any status. Raises `OSError` without a response."""
        request = urllib.request.Request(
            f"http://{self._address}{path}", method=method, headers=self._headers
        )
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with _DIRECT.open(request, timeout=self._seconds) as response:
                return CallResult(response.status, _json(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return CallResult(error.code, _json(error.read()))
        except http.client.HTTPException as error:  # the response broke off
            raise ConnectionError(str(error)) from error

    def request_ok(self, method: str, path: str, body: object = None) -> Any:
        """The response's body. Raises `CallRefused` unless the status is 200 or 201."""
        status, response = self.request(method, path, body)
        if status not in (200, 201):
            raise CallRefused(f"`{method} {path}` returned {status}: {json.dumps(response)}")
        return response

    def is_up(self, path: str) -> bool:
        """Whether `path` returns 200."""
        try:
            return self.request("GET", path).status == http.client.OK
        except OSError:
            return False


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None
