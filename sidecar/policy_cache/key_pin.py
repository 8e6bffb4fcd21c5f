"""Pins the log's signing key: the first key that this sidecar saw is trusted, and later ones only
if the trusted one endorses them."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.ground.canonical import b64, unb64
from policies.ground.signing import Endorsement, endorsed
from sidecar.policy_cache.feed import FeedPage, FeedRejected

OVERLAP = 3600 * 1_000_000
"""Microseconds after a rotation for which signatures by the replaced keys still count."""
_NAMES = ("log_key", "log_key_former", "log_key_until")


class NotEndorsed(Exception):
    """the control API shows a log key that the first one seen does not endorse"""


@dataclass(frozen=True, slots=True)
class KeyPin:
    """The signing keys of the log that are trusted. `key` signs the log now. Until `until`
    (microseconds since 1970 UTC), signatures by the keys in `former` count too."""

    key: bytes
    former: tuple[bytes, ...] = ()
    until: int = 0

    def accepted(self, now: int) -> tuple[bytes, ...]:
        # A key rotation reaches the replicas of a control API one after the other, so the replaced
        # keys count for a while. After that, a stolen copy of one is useless.
        return (self.key, *self.former) if now < self.until else (self.key,)

    def advanced(self, shown: bytes, history: Sequence[Endorsement], now: int) -> "KeyPin":
        """Return the pin after the control API has shown the key `shown`, with the endorsements
        that lead from the pinned key to it. Raises `NotEndorsed` if the endorsements do not lead to
        it."""
        # A replica of the control API may still show a former key: during the overlap that is fine,
        # and the pin stays.
        if shown in self.accepted(now):
            return self
        if not history or endorsed(self.key, history) != shown:
            raise NotEndorsed(NotEndorsed.__doc__)
        return _after(self.key, shown, history, now)

    def to_meta(self) -> dict[str, str | int]:
        former = " ".join(map(b64, self.former))
        return dict(zip(_NAMES, (b64(self.key), former, self.until), strict=True))

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> "KeyPin | None":
        """Return the pin stored in a cache file's metadata; None if there is none. Raises
        `sqlite3.DatabaseError` if it is damaged."""
        key, former, until = (meta.get(name) for name in _NAMES)
        if key is None:
            return None
        try:
            return cls(unb64(key), tuple(map(unb64, (former or "").split())), until or 0)
        except (ValueError, TypeError, AttributeError) as error:
            raise sqlite3.DatabaseError(f"the log's key can't be read: {error}") from error


def advance_pin(
    pin: KeyPin | None, shown: bytes, history: Sequence[Endorsement], now: int
) -> KeyPin:
    """Return the pin after the control API has shown the key `shown`. Without an earlier pin, make
    the first one. Raises `NotEndorsed`."""
    # Only the very first key is trusted without proof (trust on first use).
    if pin is not None:
        return pin.advanced(shown, history, now)
    # A control API replica that has not restarted since the rotation still signs with the former
    # key, so that one counts too.
    first = history[0].former if history else shown
    if first == shown or endorsed(first, history) != shown:
        return KeyPin(shown)
    return _after(first, shown, history, now)


def verify_origin(page: FeedPage, tenant_id: str | None, pin: KeyPin | None, now: int) -> KeyPin:
    """Return the pin of the log's key after this answer. Raises `FeedRejected` if the answer is
    about another tenant, or if the pinned key does not endorse the key in it."""
    # For example after a mistyped `key_file`: one cache must never mix the policies of two tenants.
    if tenant_id is not None and page.tenant_id != tenant_id:
        raise FeedRejected("the key in `key_file` belongs to another tenant than this policy cache")
    try:
        return advance_pin(pin, page.log_key, page.log_key_history, now)
    except NotEndorsed as error:
        raise FeedRejected(str(error)) from error


def _after(first: bytes, key: bytes, history: Sequence[Endorsement], now: int) -> KeyPin:
    # Every key since `first` keeps counting during the overlap.
    at = next(i for i, each in enumerate(history) if each.former == first)
    return KeyPin(key, tuple(each.former for each in history[at:]), now + OVERLAP)
