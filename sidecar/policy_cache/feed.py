"""Defines the interface through which a policy set arrives (pages of changed documents) and its
errors."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from policies.ground.signing import Endorsement


class FeedFailed(Exception):
    """the feed gave no usable answer; asking again may help"""


class FeedForbidden(FeedFailed):
    """the feed does not accept this sidecar's key, or no longer does"""


class FeedRejected(Exception):
    """the feed's answer must not be trusted; an operator has to look"""


class FeedDocument(NamedTuple):
    """One document of a policy set, at the revision that last changed it.

    `digest` is the SHA-256 of `body` in hex. Both are as the sender sent them, not verified. `body`
    is None if the document was removed.
    """

    name: str
    revision: int
    digest: str
    body: bytes | None


def verify_digest(document: FeedDocument) -> FeedDocument:
    """Return the document if its body has the digest sent with it. Raises `FeedFailed`
    otherwise."""
    # Over HTTP this catches a bug or a broken proxy. It proves nothing about the sender,
    # who sends both the body and the digest.
    name, _, digest, body = document
    if body is not None and hashlib.sha256(body).hexdigest() != digest:
        raise FeedFailed(f"document `{name}` does not match the digest sent with it")
    return document


class Position(NamedTuple):
    """How far a replica has got: it holds the set up to `revision` of the control API's store that
    `epoch` identifies. An empty replica is at `Position("", 0)`."""

    epoch: str
    revision: int


def reject_older(epoch: str, revision: int, held: Position) -> None:
    """Raise `FeedRejected` if `revision` is older than the revision that is held from the same
    store."""
    # A replayed or restored older set could make a revoked key valid again. A different
    # epoch means a different store, whose revisions can't be compared with ours.
    if epoch == held.epoch and revision < held.revision:
        seen = f"`{held.revision}`, which was already seen of the same store"
        raise FeedRejected(f"policy set `{revision}` is older than {seen}")


@dataclass(frozen=True, slots=True)
class FeedPage:
    """One answer of a feed: documents that changed after the position asked about.

    `documents` are ordered by revision. With `reset`, they build the set again from nothing. While
    `more` is true, the rest of the same change follows after the last document's revision; once it
    is false, the set is complete at `revision`. A page without documents and without `more` means
    that nothing changed.
    """

    epoch: str
    revision: int
    reset: bool
    more: bool
    tenant_id: str
    log_key: bytes
    documents: tuple[FeedDocument, ...]
    log_key_history: tuple[Endorsement, ...] = ()


class Feed(Protocol):
    """The interface of a source that sends the policy set page by page."""

    async def next(self, position: Position, wait: float) -> FeedPage:
        """Return the page of changes after `position`. If there is none yet, wait up to `wait`
        seconds for the next change. Raises `FeedFailed`, and `FeedForbidden` if the sidecar's key
        is refused."""
        ...


class LookupFeed(Feed, Protocol):
    """The interface of a feed that can also be asked for documents by name."""

    async def lookup(self, names: Sequence[str]) -> FeedPage:
        """Return the documents with these names at the page's revision. Removed documents have no
        body. `more` is True if names were left out. Raises the errors of `next`."""
        ...
