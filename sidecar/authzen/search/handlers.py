"""Handles AuthZEN search: `POST /access/v1/search/subject`, `/resource` and `/action`.

A handler reads the question and the requested page, has candidates judged, and renders one page of
the results. The token for the next page says where this page ended. It is signed with a key that
only this process has, so it is invalid after a restart, and at another replica: the client then
starts its search again. A token holds no secret: only what the client has sent and seen, and the id
of its API key. Knows neither how a candidate is judged nor how HTTP is spoken.
"""

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import orjson

from policies.definitions.model import Key
from policies.ground.errors import Malformed
from sidecar.api.route import ApiReply, ApiRequest, ApiRoute
from sidecar.authzen import wire
from sidecar.authzen.question import Question, read_question
from sidecar.authzen.search.searches import Found, Searches
from sidecar.authzen.wire import SEARCH_ACTION, SEARCH_RESOURCE, SEARCH_SUBJECT, describe, read_body
from sidecar.platform import eager
from sidecar.platform.eager import until_departed

LIFETIME_SECONDS = 600.0
KEY_BYTES = 32
_TAG_BYTES = hashlib.sha256().digest_size
_FORGED = "page.token: was not issued by this process for this API key; start the search again"


class PageStart(NamedTuple):
    """The start of a page of results: it begins after the result `after`, or at the first result if
    that is None. The page has at most `limit` results."""

    after: str | None
    limit: int


class PageTokens:
    """Makes and reads page tokens. `secret` signs them; `monotonic` is the clock by which they
    expire."""

    def __init__(self, secret: bytes, monotonic: Callable[[], float]) -> None:
        self._secret = secret
        self._monotonic = monotonic

    def make(self, start: PageStart, key_id: str, question: Any) -> str:
        """Return the token of the page at `start`, in the search for `question` (parsed JSON) by
        the key `key_id`."""
        members = [start.after, start.limit, self._monotonic(), key_id, _digest(question)]
        payload = orjson.dumps(members)
        return wire.base64url_encode(self._tag(payload) + payload)

    def read(self, token: str, key_id: str, question: Any) -> PageStart:
        """Return the start of the page that the token stands for. Raises `Malformed` for a token
        that was not made by this process, was made for another key or question, or is too old."""
        try:
            raw = wire.base64url_decode(token)
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
    # Sorted, because the order of members means nothing. Not orjson, which can't write a number of
    # 65 bits.
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


MAX_RESULTS = 1000
DEFAULT_RESULTS = 100
READING_SCOPES = ("read", "admin")
"""The scopes of keys that may search for subjects: the answer names other agents."""
ASKING_SCOPES = ("evaluate", *READING_SCOPES)
"""The scopes of keys that may search for a subject's resources and actions, which evaluations would
reveal too."""


class _Search(NamedTuple):
    """One kind of search, with the function that finds its results."""

    name: str
    """The member of the question that the search asks for."""
    find: Callable[[Question, Key], Awaitable[Found]]
    rank: Callable[[str], Any]
    """Returns the sort key of a result."""


class SearchHandlers:
    def __init__(self, searches: Searches, tokens: PageTokens) -> None:
        self._tokens = tokens
        self._subject = _Search("subject", searches.subjects, str)
        self._resource = _Search("resource", searches.resources, str)
        place = {name: at for at, name in enumerate(searches.action_names)}
        self._action = _Search("action", searches.actions, place.__getitem__)

    def routes(self) -> Mapping[str, ApiRoute]:
        return {
            SEARCH_SUBJECT: self._route(self._subject, READING_SCOPES),
            SEARCH_RESOURCE: self._route(self._resource, ASKING_SCOPES),
            SEARCH_ACTION: self._route(self._action, ASKING_SCOPES),
        }

    def _route(self, search: _Search, scopes: tuple[str, ...]) -> ApiRoute:
        async def handle(request: ApiRequest, body: bytes) -> ApiReply:
            return await self._answer(search, request, body)

        return ApiRoute("authzen_search", ("POST",), scopes, handle, describe_error=describe)

    async def _answer(self, search: _Search, request: ApiRequest, body: bytes) -> ApiReply:
        assert request.key is not None  # the route requires one
        key, members = request.key, read_body(body, request.content_type)
        question = read_question(members, sought=search.name)
        asked = [search.name, *map(list, question[:3]), question.context]
        start = self._page_start(members, key, asked)
        await eager.within_task()
        # It may end at any point, since nothing of a search is recorded.
        async with until_departed(request.watch_client):
            found = await search.find(question, key)
        after = start.after
        rest = [
            name for name in found.names if after is None or search.rank(name) > search.rank(after)
        ]
        shown = rest[: start.limit]
        token = ""
        if len(rest) > len(shown):
            last = shown[-1] if shown else after
            token = self._tokens.make(PageStart(last, start.limit), key.key_id, asked)
        answer: dict[str, Any] = {
            "page": {"next_token": token, "count": len(shown), "total": len(found.names)}
        }
        if found.patterns:
            answer["context"] = {"patterns": found.patterns}
        answer["results"] = [_shown(search, question, name) for name in shown]
        return ApiReply(orjson.dumps(answer))

    def _page_start(self, members: dict[str, Any], key: Key, asked: Any) -> PageStart:
        """Return where the requested page starts. Raises `Malformed`."""
        page = members.get("page", {})
        if type(page) is not dict:
            raise Malformed("`page` must be an object")
        if type(page.get("properties", {})) is not dict:
            raise Malformed("`page.properties` must be an object")
        limit = _limit(page)
        if "token" not in page:
            return PageStart(None, DEFAULT_RESULTS if limit is None else limit)
        if type(page["token"]) is not str:
            raise Malformed("`page.token` must be a string")
        start = self._tokens.read(page["token"], key.key_id, asked)
        if limit not in (None, start.limit):
            raise Malformed("`page.limit` must stay as it was, or be left out, with a token")
        return start


def _limit(page: dict[str, Any]) -> int | None:
    if "limit" not in page:
        return None
    limit = page["limit"]
    if type(limit) is not int or limit < 0:
        raise Malformed("`page.limit` must be a whole number from 0")
    return min(limit, MAX_RESULTS)


def _shown(search: _Search, question: Question, name: str) -> dict[str, str]:
    if search.name == "action":
        return {"name": name}
    sought = question.subject if search.name == "subject" else question.resource
    return {"type": sought.type, "id": name}
