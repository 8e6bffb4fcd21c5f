"""Opens what the control API signed, and counts what it did not. Knows nothing of Redis."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from policies.sets.signed_head import Claim, Heartbeat, SetHead, SignatureRejected

_Signed = TypeVar("_Signed", SetHead, Heartbeat, Claim)
Entries = Iterable[tuple[bytes, Mapping[bytes, bytes]]]
"""Entries of a stream: the id, and the fields."""


class SignatureCheck:
    """The check for one tenant. `log_keys` returns the keys that sign the log; `forged` counts the
    items that none of them signed."""

    def __init__(self, tenant_id: str, log_keys: Callable[[], tuple[bytes, ...]]) -> None:
        # Counted, because each means an attacker, or a rotated key that we do not know yet.
        self.forged = 0
        self._tenant = tenant_id
        self._log_keys = log_keys
        self._head: tuple[bytes, SetHead] | None = None

    def head(self, signed: bytes) -> SetHead:
        """Raises and counts `SignatureRejected`."""
        # The stream brings the head that the set then has: verify its signature once.
        if self._head is None or self._head[0] != signed:
            try:
                self._head = signed, self._opened(SetHead, signed)
            except SignatureRejected:
                self.forged += 1
                raise
        return self._head[1]

    def heads(self, entries: Entries) -> list[SetHead]:
        """Those with a good signature; others count as missing."""
        opened = []
        for _, fields in entries:
            with suppress(SignatureRejected):
                opened.append(self.head(fields.get(b"h", b"")))
        return opened

    def heartbeats(self, entries: Entries) -> list[Heartbeat]:
        """Those with a good signature; others count as missing."""
        opened = []
        for _, fields in entries:
            try:
                opened.append(self._opened(Heartbeat, fields.get(b"b", b"")))
            except SignatureRejected:
                self.forged += 1
        return opened

    def claim(self, signed: bytes) -> Claim | None:
        """None if it can't be trusted."""
        with suppress(SignatureRejected):
            return self._opened(Claim, signed)
        return None

    def _opened(self, kind: type[_Signed], signed: bytes) -> _Signed:
        # During a key rotation there are several.
        for public in self._log_keys():
            with suppress(SignatureRejected):
                return kind.opened(signed, public, self._tenant)
        raise SignatureRejected("the signature is not by the log's key")
