"""The log's key as this sidecar knows it: the one first seen, moved by endorsements alone.

A rotation reaches the replicas of a control API one after the other. So for `OVERLAP` the keys that
were replaced count too, and no longer: who comes upon an old copy of one can do nothing with it.

Knows nothing of transports, nor what is signed.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies.ground.canonical import b64, unb64
from policies.ground.signing import Endorsement, endorsed

OVERLAP = 3600 * 1_000_000
"""Microseconds."""
_NAMES = ("log_key", "log_key_former", "log_key_until")


class NotEndorsed(Exception):
    """the control API shows another log key than the one first seen, and nothing endorses it"""


@dataclass(frozen=True, slots=True)
class KeyPin:
    """`key` signs; until the time `until` (microseconds) those of `former` do too."""

    key: bytes
    former: tuple[bytes, ...] = ()
    until: int = 0

    def believed(self, now: int) -> tuple[bytes, ...]:
        """Whose signatures count."""
        return (self.key, *self.former) if now < self.until else (self.key,)

    def moved(self, shown: bytes, history: Sequence[Endorsement], now: int) -> "KeyPin":
        """The pin after the control API showed `shown`, with what leads to it; `NotEndorsed`."""
        if shown in self.believed(now):
            return self
        if not history or endorsed(self.key, history) != shown:
            raise NotEndorsed(NotEndorsed.__doc__)
        return _after(self.key, shown, history, now)

    def to_meta(self) -> dict[str, str | int]:
        former = " ".join(map(b64, self.former))
        return dict(zip(_NAMES, (b64(self.key), former, self.until), strict=True))

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> "KeyPin | None":
        """`sqlite3.DatabaseError` where it is not as it was written."""
        key, former, until = (meta.get(name) for name in _NAMES)
        if key is None:
            return None
        try:
            return cls(unb64(key), tuple(map(unb64, (former or "").split())), until or 0)
        except (ValueError, TypeError, AttributeError) as error:
            raise sqlite3.DatabaseError(f"the log's key can't be read: {error}") from error


def pinned(pin: KeyPin | None, shown: bytes, history: Sequence[Endorsement], now: int) -> KeyPin:
    """The pin that there is, moved; or the first, where there is none."""
    if pin is not None:
        return pin.moved(shown, history, now)
    # Another replica may not have been started again since: what came before, it still shows.
    first = history[0].former if history else shown
    if first == shown or endorsed(first, history) != shown:
        return KeyPin(shown)
    return _after(first, shown, history, now)


def _after(first: bytes, key: bytes, history: Sequence[Endorsement], now: int) -> KeyPin:
    at = next(i for i, each in enumerate(history) if each.former == first)
    return KeyPin(key, tuple(each.former for each in history[at:]), now + OVERLAP)
