"""Remembers the sources that a continuation was issued for: a scroll id, a point in time, a page
token or a task id names no source itself (`protocols/RULES.md`, Continuations).

Knows tokens and sources. The sources of a token are authorized again at every use. A token that is
unknown here, or was issued to another user or session, is denied. Tokens are kept in memory: after
a restart an agent has to begin its scroll again.
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
"""The most sources of a token. One with more is forgotten: a request can't name more either."""


# The token itself is not kept: its digest is the key.
class _Issued(NamedTuple):
    sources: tuple[SourceRef, ...]
    user: str
    session: str | None

    def is_for(self, who: Attribution) -> bool:
        return (self.user, self.session) == (who.user, who.session)


class Continuations:
    """The tokens of one data source, by digest; the oldest are evicted first."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._issued: DigestCache[_Issued] = DigestCache(
            monotonic, ttl_seconds=TTL_SECONDS, max_entries=MAX_ENTRIES, max_bytes=MAX_BYTES
        )

    def remember(self, token: str, who: Attribution, sources: tuple[SourceRef, ...]) -> None:
        """Records that a response from these sources contained `token`. If the same user and
        session got it before, it now stands for the sources of both responses: for them, a token
        never comes to stand for less."""
        key = _key(token)
        # An expired entry counts too, or the token would come to stand for less.
        known = self._issued.get(key, include_expired=True)
        if known is not None and known.is_for(who):
            sources = tuple(dict.fromkeys((*known.sources, *sources)))
        if len(sources) > MAX_SOURCES:
            # A caller who chooses the token could make its sources grow without limit. From now on
            # the token is denied.
            self._issued.discard(key)
            return
        size = sum(len(source.source_id) for source in sources) + len(who.user)
        issued = _Issued(sources, who.user, who.session)
        self._issued.put(key, issued, size, self._issued.start_lookup())

    def sources_of(self, token: str, who: Attribution) -> tuple[SourceRef, ...]:
        """The sources that `token` was issued for. Raises `Unresolved`."""
        # This grants nothing: the policy is asked about these sources at every use.
        known = self._issued.get(_key(token))
        if known is None:
            raise Unresolved("the continuation was not issued through this sidecar, or has expired")
        if not known.is_for(who):
            raise Unresolved("the continuation was issued to another user or session")
        return known.sources

    def check_owner(self, token: str, who: Attribution) -> None:
        """Raises `Unresolved` if `token`, a name that the caller chose, belongs to someone else.
        It belongs to the first caller who used it."""
        # An expired entry counts: what the owner said may still be in the session or memory.
        known = self._issued.get(_key(token), include_expired=True)
        if known is not None and not known.is_for(who):
            raise Unresolved("the session or memory belongs to another user or session")


def _key(token: str) -> bytes:
    # JSON strings may hold lone surrogates, and a token is whatever the data source sent.
    return digest(token.encode("utf-8", "surrogatepass"))
