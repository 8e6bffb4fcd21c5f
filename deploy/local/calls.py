"""JSON over HTTP to the processes beside us: past any proxy, never without a time limit."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class CallRefused(Exception):
    """an answer that was not hoped for: the request, its status, and what the other side said"""


class CallResult(NamedTuple):
    """A status and the JSON that came with it (None where it was no JSON)."""

    status: int
    body: Any


class Calls:
    """Requests to one address, with one key."""

    def __init__(self, address: str, key: str | None = None, seconds: float = 10.0) -> None:
        self._address = address
        self._headers = {"X-API-Key": key} if key else {}
        self._seconds = seconds

    def ask(self, method: str, path: str, body: object = None) -> CallResult:
        """Whatever the status; `OSError` where nobody answers."""
        request = urllib.request.Request(
            f"http://{self._address}{path}", method=method, headers=self._headers
        )
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with _DIRECT.open(request, timeout=self._seconds) as answer:
                return CallResult(answer.status, _json(answer.read()))
        except urllib.error.HTTPError as error:
            with error:
                return CallResult(error.code, _json(error.read()))
        except http.client.HTTPException as error:  # it ended in the middle of its answer
            raise ConnectionError(str(error)) from error

    def want(self, method: str, path: str, body: object = None) -> Any:
        """The answer's body; `CallRefused` unless the status is 200 or 201."""
        status, answer = self.ask(method, path, body)
        if status not in (200, 201):
            raise CallRefused(f"`{method} {path}` answered {status}: {json.dumps(answer)}")
        return answer

    def answers(self, path: str) -> bool:
        """Whether there is a 200 at `path` by now."""
        try:
            return self.ask("GET", path).status == http.client.OK
        except OSError:
            return False


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None
