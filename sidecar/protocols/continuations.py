"""What a continuation stands for: a scroll, a point in time, a page, a task name no source, so what
they were issued for is remembered (data-sources.md R5).

Knows tokens and places. What was issued is judged anew at every use; a token that is not known
here, or was issued for another user or session, is denied. Kept in memory: after a restart an agent
begins its scroll again.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from sidecar.protocols.protocol import Place, Unresolved
from sidecar.proxy.attribution import Attribution

KEPT = 16_384
KEPT_SECONDS = 24 * 3600.0
MOST_PLACES = 256
"""A token that would stand for more is forgotten."""


class _Issued(NamedTuple):
    places: tuple[Place, ...]
    user: str
    session: str | None
    at: float


class Continuations:
    """Tokens of one data source by their digest; the oldest of more than `KEPT` is forgotten."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._issued: dict[bytes, _Issued] = {}

    def issue(self, token: str, who: Attribution, places: tuple[Place, ...]) -> None:
        """An answer of these places held `token`. One that is issued again for others stands for
        all of them: a token never comes to stand for less."""
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._issued.pop(digest, None)
        if known is not None and (known.user, known.session) == (who.user, who.session):
            places = tuple(dict.fromkeys((*known.places, *places)))
        if len(places) > MOST_PLACES:
            # Forgotten, so that it is denied: who chooses a token might make it stand for no end.
            return
        while len(self._issued) >= KEPT:
            del self._issued[next(iter(self._issued))]
        self._issued[digest] = _Issued(places, who.user, who.session, self._monotonic())

    def find(self, token: str, who: Attribution) -> tuple[Place, ...]:
        """What `token` was issued for. Raises `Unresolved`."""
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._issued.get(digest)
        if known is None or self._monotonic() - known.at > KEPT_SECONDS:
            raise Unresolved("the continuation was not issued through this sidecar, or long ago")
        if (known.user, known.session) != (who.user, who.session):
            raise Unresolved("the continuation was issued for another user or session")
        return known.places

    def check_holder(self, token: str, who: Attribution) -> None:
        """Raises `Unresolved` where `token`, a name of the caller's own choice, was issued to
        another: the first who states it holds it."""
        digest = sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._issued.get(digest)
        if known is not None and (known.user, known.session) != (who.user, who.session):
            raise Unresolved("what is named belongs to another user or session")
