"""Keeps the sources of a range: what its first record there claims about those before it, and the
end of its chain so far. Knows records in the known form; `RangeWalk` brings the others."""

import re
from binascii import b2a_base64

import orjson

from policies.trail.walk.columns import core_hashes, spell
from policies.trail.walk.known_lines import Columns
from policies.trail.walk.range_result import ChainEnd, Source, SourceClaim

_IS_HASH = re.compile(rb"(?:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048])?")


class SourceChains:
    """The sources, by the text of `id` and `inst` in `src`."""

    def __init__(self) -> None:
        # The hash of a source's last record is compared as it is; base64 is for the result.
        self._claims: dict[bytes, SourceClaim] = {}
        self._ends: dict[bytes, tuple[int, bytes]] = {}

    def end(self, source: bytes) -> ChainEnd | None:
        """Where the source's chain has come to; None if the range has not met it."""
        end = self._ends.get(source)
        return None if end is None else (end[0], b2a_base64(end[1], newline=False))

    def put(self, source: bytes, n: int, hashed: bytes, claim: SourceClaim | None) -> None:
        """Take in record `n`, of this hash; with its `claim` if it is the source's first here."""
        if claim is not None:
            self._claims[source] = claim
        self._ends[source] = n, hashed

    def take(self, columns: Columns, first: int) -> bool:
        """Take in the records of lines in the known form, numbered from `first` on, if each
        continues its source; else none of them."""
        if not any(columns.src):
            return True
        claims: dict[bytes, SourceClaim] = {}
        ends: dict[bytes, tuple[int, bytes]] = {}
        expected: list[bytes] = []
        given: list[bytes] = []
        for place, (source, n, prev, hashed) in enumerate(
            zip(columns.source, columns.n, columns.src_prev, core_hashes(columns), strict=True)
        ):
            if not source:
                continue
            number = int(n)
            end = ends.get(source) or self._ends.get(source)
            if end is None:
                if _IS_HASH.fullmatch(prev) is None:
                    return False
                claim = b"%b=" % prev if prev else b""
                eid = columns.eid[place]
                claims[source] = SourceClaim(first + place, eid, number, claim, number, b"")
            elif number != end[0] + 1:
                return False
            else:
                expected.append(end[1])
                given.append(prev)
            ends[source] = number, hashed
        if expected and not spell(expected, given):
            return False
        self._claims |= claims
        self._ends |= ends
        return True

    def result(self) -> dict[Source, SourceClaim]:
        """By `id` and `inst`, in the order in which the range met them."""
        found: dict[Source, SourceClaim] = {}
        for text, claim in self._claims.items():
            n, hashed = self._ends[text]
            names = orjson.loads(b"{%b}" % text)
            found[names["id"].encode(), names["inst"].encode()] = claim._replace(
                last_n=n, last_hash=b2a_base64(hashed, newline=False)
            )
        return found
