"""The policy-set feed over HTTP: `GET /v1/sidecars/policy-set`, answered when there is news, and
`POST /v1/sidecars/policy-set/documents`, which answers with documents by name.

Knows the form of the answer. Knows nothing of what it means for the copy we hold.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import orjson

from policies.ground.canonical import unb64
from policies.ground.signing import Endorsement
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.policy_cache.feed import FeedDocument, FeedFailed, FeedForbidden, FeedPage, Position

PATH = "/v1/sidecars/policy-set"
NAMED_PATH = "/v1/sidecars/policy-set/documents"

_PATIENCE = 5.0

T = TypeVar("T")


class LongPoll:
    """The feed. `patience` is how many seconds past `wait` an answer may take."""

    def __init__(self, centre: ControlClient, patience: float = _PATIENCE) -> None:
        self._centre = centre
        self._patience = min(patience, _PATIENCE)

    async def next(self, position: Position, wait: float) -> FeedPage:
        query = {
            "since": str(position.revision),
            "epoch": position.epoch,
            "wait": f"{wait:g}",
        }
        page = await _asked(self._centre.get(PATH, query, seconds=wait + self._patience))
        _check_order(page, position)
        return page

    async def named(self, names: Sequence[str]) -> FeedPage:
        """`LookUp.named`."""
        body = orjson.dumps({"names": list(names)})
        return await _asked(self._centre.post(NAMED_PATH, body, seconds=self._patience))


async def _asked(answer: Awaitable[dict[str, Any]]) -> FeedPage:
    try:
        return _page(await answer)
    except ControlUnavailable as error:
        refused = error.status in (401, 403)
        raise (FeedForbidden if refused else FeedFailed)(_in_words(error)) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FeedFailed(f"the answer is not a page of a policy set: {error!r}") from error


def _in_words(error: ControlUnavailable) -> str:
    if error.status in (401, 403):
        return f"{error}: is the key in `key_file` live, and of scope `sidecar`?"
    return str(error)


def _page(answer: dict[str, Any]) -> FeedPage:
    page = FeedPage(
        epoch=_typed(answer["epoch"], str),
        revision=_typed(answer["revision"], int),
        reset=_typed(answer["reset"], bool),
        more=_typed(answer["more"], bool),
        tenant_id=_typed(answer["tenant_id"], str),
        log_key=unb64(_typed(answer["log_key"], str)),
        documents=tuple(_document(document) for document in answer["documents"]),
        # A control API that is older than this sidecar has none.
        log_key_history=tuple(map(Endorsement.from_wire, answer.get("log_key_history", ()))),
    )
    if not page.epoch:
        raise ValueError("`epoch` is empty")
    if page.more and not page.documents:
        raise ValueError("`more` follows, and nothing came")
    return page


def _document(wire: dict[str, Any]) -> FeedDocument:
    body = wire["body"]
    return FeedDocument(
        _typed(wire["name"], str),
        _typed(wire["revision"], int),
        "" if body is None else _typed(wire["digest"], str),
        None if body is None else _typed(body, str).encode(),
    )


def _typed(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise TypeError(f"`{str(value)[:40]}` is not a {kind.__name__}")
    return value


def _check_order(page: FeedPage, asked: Position) -> None:
    """A copy that follows revisions can't be right if they don't grow."""
    last = 0 if page.reset else asked.revision
    for document in page.documents:
        if document.revision < last:
            raise FeedFailed(f"document `{document.name}` stands out of order")
        last = document.revision
    if page.documents and last > page.revision and not page.more:
        raise FeedFailed(f"a document is newer than the policy set `{page.revision}`")
