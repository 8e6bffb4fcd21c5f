"""What a continuation stands for: a scroll, a point in time, a page, a task name no source, so what
they were issued for is remembered (data-sources.md R5).

Knows tokens and places. What was issued is judged anew at every use; a token that is not known
here, or was issued for another user or session, is denied. Kept in memory: after a restart an agent
begins its scroll again.
"""

from collections.abc import Callable
from typing import NamedTuple

from sidecar.http.attribution import Attribution
from sidecar.protocols.messages import SourceRef, Unresolved
from sidecar.protocols.shared.digest_cache import DigestCache, digest

MAX_ENTRIES = 16_384
TTL_SECONDS = 24 * 3600.0
MAX_BYTES = 16 * 1024 * 1024
MAX_SOURCES = 64
"""A token that would stand for more is forgotten: no request may concern more."""


class _Issued(NamedTuple):
    places: tuple[SourceRef, ...]
    user: str
    session: str | None


class Continuations:
    """Tokens of one data source by their digest; the oldest are forgotten first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._issued: DigestCache[_Issued] = DigestCache(
            monotonic, ttl_seconds=TTL_SECONDS, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES
        )

    def remember(self, token: str, who: Attribution, places: tuple[SourceRef, ...]) -> None:
        """An answer of these places held `token`. One that is issued again for others stands for
        all of them: a token never comes to stand for less."""
        key = _key(token)
        known = self._issued.get(key, include_expired=True)
        if known is not None and (known.user, known.session) == (who.user, who.session):
            places = tuple(dict.fromkeys((*known.places, *places)))
        if len(places) > MAX_SOURCES:
            # Denied from now on: a caller who chooses a token might make it stand for no end.
            self._issued.discard(key)
            return
        size = sum(len(place.source_id) for place in places) + len(who.user)
        issued = _Issued(places, who.user, who.session)
        self._issued.put(key, issued, size, self._issued.start_lookup())

    def sources_of(self, token: str, who: Attribution) -> tuple[SourceRef, ...]:
        """What `token` was issued for. Raises `Unresolved`."""
        known = self._issued.get(_key(token))
        if known is None:
            raise Unresolved("the continuation was not issued through this sidecar, or long ago")
        if (known.user, known.session) != (who.user, who.session):
            raise Unresolved("the continuation was issued for another user or session")
        return known.places

    def check_owner(self, token: str, who: Attribution) -> None:
        """Raises `Unresolved` where `token`, a name of the caller's own choice, was issued to
        another: the first who states it holds it."""
        known = self._issued.get(_key(token), include_expired=True)
        if known is not None and (known.user, known.session) != (who.user, who.session):
            raise Unresolved("what is named belongs to another user or session")


def _key(token: str) -> bytes:
    return digest(token.encode("utf-8", "surrogatepass"))
