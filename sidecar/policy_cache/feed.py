"""The port through which a policy set arrives: pages of changed documents. Knows no transport."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from policies.ground.signing import Endorsement


class FeedDocument(NamedTuple):
    """One document of a policy set at the revision that last changed it.

    `digest` is the SHA-256 of `body` in hex; both are as sent, unchecked. `body` is None where the
    document was removed.
    """

    name: str
    revision: int
    digest: str
    body: bytes | None


def checked(document: FeedDocument) -> FeedDocument:
    """The document, `FeedFailed` where its body does not have its digest."""
    name, _, digest, body = document
    if body is not None and hashlib.sha256(body).hexdigest() != digest:
        raise FeedFailed(f"document `{name}` does not have the digest it came with")
    return document


class Position(NamedTuple):
    """How far a copy has come: the last revision it holds of the store that `epoch` names. An
    empty copy is at `Position("", 0)`."""

    epoch: str
    revision: int


@dataclass(frozen=True, slots=True)
class FeedPage:
    """One answer of a feed.

    `documents` stand in order of revision. `reset` says that they begin at nothing again. While
    `more` is true the rest of the same change follows, after the last document's revision; once it
    is false the copy is complete at `revision`. No documents and no `more`: no news, which is news.
    """

    epoch: str
    revision: int
    reset: bool
    more: bool
    tenant_id: str
    log_key: bytes
    documents: tuple[FeedDocument, ...]
    log_key_history: tuple[Endorsement, ...] = ()


class FeedFailed(Exception):
    """the feed gave no usable answer; asking again may help"""


class FeedForbidden(FeedFailed):
    """the feed does not know this sidecar's key, or not any more"""


class Feed(Protocol):
    """Where a policy set comes from."""

    async def next(self, position: Position, wait: float) -> FeedPage:
        """What follows `position`; with nothing to tell, the answer comes after `wait` seconds or
        at the next change. Raises `FeedFailed`, and
        `FeedForbidden` where the key is refused."""
        ...


class LookUp(Feed, Protocol):
    """A feed that can also be asked for documents by name."""

    async def named(self, names: Sequence[str]) -> FeedPage:
        """The documents of these names at the page's revision, removed ones without a body; `more`
        where names were left out. Raises as `next` does."""
        ...
