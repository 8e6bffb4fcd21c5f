"""Reads the policy-set feed over HTTP: `GET /v1/sidecars/policy-set`, which is answered when
something has changed, and `POST /v1/sidecars/policy-set/documents`, which returns documents by
name."""

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import orjson

from policies.ground.canonical import unb64
from policies.ground.signing import Endorsement
from sidecar.control.client import ControlClient, ControlUnavailable
from sidecar.policy_cache.feed import FeedDocument, FeedFailed, FeedForbidden, FeedPage, Position

PATH = "/v1/sidecars/policy-set"
LOOKUP_PATH = "/v1/sidecars/policy-set/documents"

_MAX_DELAY = 5.0

T = TypeVar("T")


class LongPoll:
    """A `LookupFeed` that asks the control API over HTTP. An answer may take `max_delay` seconds
    longer than `wait`."""

    def __init__(self, control: ControlClient, max_delay: float) -> None:
        self._control = control
        self._max_delay = min(max_delay, _MAX_DELAY)

    async def next(self, position: Position, wait: float) -> FeedPage:
        query = {"since": str(position.revision), "epoch": position.epoch, "wait": f"{wait:g}"}
        # The control API may use all of `wait`; only a delay beyond that is a fault.
        page = await _page_of(self._control.get(PATH, query, seconds=wait + self._max_delay))
        _check_order(page, position)
        return page

    async def lookup(self, names: Sequence[str]) -> FeedPage:
        body = orjson.dumps({"names": list(names)})
        return await _page_of(self._control.post(LOOKUP_PATH, body, seconds=self._max_delay))


async def _page_of(answer: Awaitable[dict[str, Any]]) -> FeedPage:
    try:
        return _parse_page(await answer)
    except ControlUnavailable as error:
        if error.status in (401, 403):
            ask = "is the sidecar's key (of `key_file`, or enrolled) live, and of scope `sidecar`?"
            raise FeedForbidden(f"{error}: {ask}") from error
        raise FeedFailed(str(error)) from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FeedFailed(f"the answer is not a page of a policy set: {error!r}") from error


def _parse_page(answer: dict[str, Any]) -> FeedPage:
    page = FeedPage(
        epoch=_typed(answer["epoch"], str),
        revision=_typed(answer["revision"], int),
        reset=_typed(answer["reset"], bool),
        more=_typed(answer["more"], bool),
        tenant_id=_typed(answer["tenant_id"], str),
        log_key=unb64(_typed(answer["log_key"], str)),
        documents=tuple(_parse_document(document) for document in answer["documents"]),
        # A control API older than this sidecar does not send this field.
        log_key_history=tuple(map(Endorsement.from_wire, answer.get("log_key_history", ()))),
    )
    # In a `Position`, an empty epoch stands for an empty replica, so no store may have it.
    if not page.epoch:
        raise ValueError("`epoch` is empty")
    # The next poll would be the same as this one, and so on forever.
    if page.more and not page.documents:
        raise ValueError("`more` is true but there are no documents")
    return page


def _parse_document(wire: dict[str, Any]) -> FeedDocument:
    name, revision = _typed(wire["name"], str), _typed(wire["revision"], int)
    if wire["body"] is None:
        return FeedDocument(name, revision, "", None)
    body = _typed(wire["body"], str).encode()
    return FeedDocument(name, revision, _typed(wire["digest"], str), body)


def _typed(value: object, kind: type[T]) -> T:
    # Not `isinstance`: `true` must not pass for a revision.
    if type(value) is not kind:
        raise TypeError(f"`{str(value)[:40]}` is not a {kind.__name__}")
    return value


def _check_order(page: FeedPage, asked: Position) -> None:
    """Raise `FeedFailed` if the documents are not in the order of their revisions, or if one is
    newer than the revision at which this page completes the set."""
    # The next page begins after the last document's revision, so a feed that is out of order could
    # leave documents out for good.
    last = 0 if page.reset else asked.revision
    for document in page.documents:
        if document.revision < last:
            raise FeedFailed(f"document `{document.name}` is out of order: revisions must grow")
        last = document.revision
    if page.documents and last > page.revision and not page.more:
        raise FeedFailed(f"a document is newer than the policy set `{page.revision}`")
