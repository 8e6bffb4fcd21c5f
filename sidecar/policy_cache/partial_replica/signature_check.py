"""Checks signatures of the control API, and counts items without a valid one. Knows nothing of
Redis."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from policies.sets.signed_head import Claim, Heartbeat, SetHead, SignatureRejected

MAX_DOUBTS = 16
"""The most items kept until the keys are known. An attacker chooses their number; a single forged
one is enough for an alert."""
MAX_DOUBT_BYTES = 2 * 1024 * 1024
"""The largest item that can be in doubt; a larger one counts as forged at once. The largest that is
ever signed is a head of 1,000 names (`MAX_CHANGED_NAMES`) of two identifiers each (`candidate/…/…`)
of 256 characters of 4 bytes: under 2,070,000 bytes."""
_Signed = TypeVar("_Signed", SetHead, Heartbeat, Claim)
Entries = Iterable[tuple[bytes, Mapping[bytes, bytes]]]
"""Entries of a stream: the id, and the fields."""


class SignatureCheck:
    """The check for one tenant. `log_keys` returns the keys that sign the log; `forged` counts the
    items that none of them signed.

    An item signed by none of the keys known is in doubt first, and not trusted: the key may have
    been rotated. Once the keys are known, `settle_doubts` counts it or forgets it. One larger than
    any that is signed counts at once, and is not kept.
    """

    def __init__(self, tenant_id: str, log_keys: Callable[[], tuple[bytes, ...]]) -> None:
        self.forged = 0
        self._tenant = tenant_id
        self._log_keys = log_keys
        self._head: tuple[bytes, SetHead] | None = None
        self._doubts: dict[bytes, tuple[str, Callable[[], object]]] = {}
        self._too_large: str | None = None

    @property
    def doubts(self) -> list[bytes]:
        """The items in doubt."""
        return [*self._doubts]

    def settle_doubts(self, doubts: Iterable[bytes]) -> list[str]:
        """Count those of these items that the keys known now did not sign either. Returns the fault
        of each, for the log, after that of an item that was too large since the last call."""
        too_large, self._too_large = self._too_large, None
        wrong = []
        for signed in doubts:
            what, open_again = self._doubts.pop(signed)
            try:
                open_again()
            except SignatureRejected as error:
                wrong.append(self._fault(what, signed, error))
        self.forged += len(wrong)
        return wrong if too_large is None else [too_large, *wrong]

    def head(self, signed: bytes) -> SetHead:
        """Return the verified head. Raises `SignatureRejected`; the head is then in doubt."""
        # The stream brings the head that the set then has: verify its signature once.
        if self._head is None or self._head[0] != signed:
            try:
                self._head = signed, self._opened(SetHead, signed)
            except SignatureRejected:
                self._doubt("a head", SetHead, signed)
                raise
        return self._head[1]

    def heads(self, entries: Entries) -> list[SetHead]:
        """Return the heads with a valid signature; others count as missing."""
        opened = []
        for _, fields in entries:
            with suppress(SignatureRejected):
                opened.append(self.head(fields.get(b"h", b"")))
        return opened

    def heartbeats(self, entries: Entries) -> list[Heartbeat]:
        """Return the heartbeats with a valid signature; others count as missing."""
        opened = []
        for _, fields in entries:
            signed = fields.get(b"b", b"")
            try:
                opened.append(self._opened(Heartbeat, signed))
            except SignatureRejected:
                self._doubt("a heartbeat", Heartbeat, signed)
        return opened

    def claim(self, signed: bytes) -> Claim | None:
        """Return the verified claim; None if it can't be trusted."""
        with suppress(SignatureRejected):
            return self._opened(Claim, signed)
        return None

    def _doubt(self, what: str, kind: type[_Signed], signed: bytes) -> None:
        if len(signed) > MAX_DOUBT_BYTES:
            self.forged += 1
            self._too_large = self._fault(what, signed, f"none is over {MAX_DOUBT_BYTES}")
        elif len(self._doubts) < MAX_DOUBTS:
            self._doubts[signed] = what, lambda: self._opened(kind, signed)

    def _fault(self, what: str, signed: bytes, why: object) -> str:
        return f"{what} of tenant `{self._tenant}`, {len(signed)} bytes: {why}"

    def _opened(self, kind: type[_Signed], signed: bytes) -> _Signed:
        # During a key rotation there are several.
        for public in self._log_keys():
            with suppress(SignatureRejected):
                return kind.opened(signed, public, self._tenant)
        raise SignatureRejected("it is not signed by the log's key, nor by one that it endorses")
