"""Openings against commitments, and the ledger of what was erased."""

from __future__ import annotations

import hmac
from base64 import b64encode
from hashlib import sha256
from typing import Any

from tests.second_verifier import encoding
from tests.second_verifier.findings import Broken, Finding
from tests.second_verifier.notes import hash_of


def check_openings(raw: bytes, commitments: dict[str, str], seq: int) -> list[str]:
    """Checks each opening. Returns the paths that have none. Raises `Broken`."""
    try:
        openings = encoding.read(raw)
    except encoding.Unreadable as error:
        raise Broken("not_an_entry", "the openings can't be read", seq) from error
    if not isinstance(openings, dict):
        raise Broken("opening_mismatch", "the openings are no object", seq)
    for path, opening in openings.items():
        if path not in commitments or commitments[path] != _commitment(path, opening):
            raise Broken("opening_mismatch", f"`{path}` does not open its commitment", seq)
    return [path for path in commitments if path not in openings]


def _commitment(path: str, opening: Any) -> str | None:
    if not isinstance(opening, list) or len(opening) != 2:
        return None
    salt = hash_of(opening[0])
    if salt is None:
        return None
    try:
        value = encoding.write(opening[1])
    except ValueError:
        return None
    parts = (path.encode(), value)
    message = b"audit/field/v1\0" + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return b64encode(hmac.new(salt, message, sha256).digest()).decode()


class Ledger:
    """Openings that are missing, until a later `redact` entry excuses them."""

    def __init__(self) -> None:
        self._missing: list[int] = []
        self._erased: list[tuple[int, int, int]] = []

    def missing(self, seq: int) -> None:
        """The entry lacks an opening."""
        self._missing.append(seq)

    def redact(self, pub: dict[str, Any], seq: int) -> None:
        """Reads the `redact` entry `seq`: `events` are ranges of `seq`, both ends included. What
        is not of that form excuses nothing."""
        events = pub.get("events")
        for each in events if isinstance(events, list) else ():
            if isinstance(each, list) and [type(end) for end in each] == [int, int]:
                self._erased += [(each[0], each[1], seq)] if each[0] >= 0 else []

    def findings(self) -> list[Finding]:
        """What is missing without an excuse."""
        return [
            Finding("opening_missing", "no `redact` entry says that it was erased", seq)
            for seq in self._missing
            if not any(first <= seq <= last < by for first, last, by in self._erased)
        ]
