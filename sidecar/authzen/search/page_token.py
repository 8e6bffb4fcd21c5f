"""Tokens with which a client asks for the next page of a search.

A token says where the page before it ended, signed with a key that only this process has. So a
token ends with a restart, and means nothing to another replica: the client starts its search again.
It holds no secret: only what the client has sent and seen, and the id of its API key.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from policies.ground.errors import Malformed
from sidecar.authzen import base64url

LIFETIME_SECONDS = 600.0
KEY_BYTES = 32
_TAG_BYTES = hashlib.sha256().digest_size
_FORGED = "page.token: was not issued by this process for this API key; start the search again"


class PageStart(NamedTuple):
    """Where a page begins: after the result with this `after`, None for the first page; with
    `limit` results at most."""

    after: str | None
    limit: int


class PageTokens:
    """Makes and reads tokens. `secret` signs them; `monotonic` is the clock that they expire by."""

    def __init__(self, secret: bytes, monotonic: Callable[[], float]) -> None:
        self._secret = secret
        self._monotonic = monotonic

    def make(self, start: PageStart, key_id: str, question: Any) -> str:
        """The token of the page at `start` of the search that `question`, as parsed JSON, makes."""
        members = [start.after, start.limit, self._monotonic(), key_id, _digest(question)]
        payload = orjson.dumps(members)
        return base64url.encode(self._tag(payload) + payload)

    def read(self, token: str, key_id: str, question: Any) -> PageStart:
        """Where the page begins. Raises `Malformed` for a token that was not made here, for another
        key or another question, or too long ago."""
        try:
            raw = base64url.decode(token)
        except ValueError:
            raise Malformed(_FORGED) from None
        tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(payload)):
            raise Malformed(_FORGED)
        after, limit, issued, owner, asked = orjson.loads(payload)
        if owner != key_id:
            raise Malformed(_FORGED)
        if self._monotonic() - issued > LIFETIME_SECONDS:
            raise Malformed("page.token: expired after 10 minutes; start the search again")
        if asked != _digest(question):
            raise Malformed("page.token: belongs to another search; send the same members again")
        return PageStart(after, limit)

    def _tag(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")


def _digest(question: Any) -> str:
    # Sorted: the order of members means nothing. Not orjson: it writes no number of 65 bits.
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()
