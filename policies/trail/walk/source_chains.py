"""Keeps the sources of a range: what its first record there claims about those before it, and the
end of its chain so far. Takes in records one by one, or those in the known form together."""

import re
from binascii import b2a_base64
from typing import Any

import orjson

from policies.ground.canonical import encode
from policies.trail.core import record_hash
from policies.trail.walk.columns import core_hashes, spell
from policies.trail.walk.faults import source_fault
from policies.trail.walk.known_lines import Columns
from policies.trail.walk.range_result import Before, Source, SourceClaim

_IS_HASH = re.compile(rb"(?:[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048])?")


class SourceChains:
    """The sources, by the text of `id` and `inst` in `src`."""

    def __init__(self) -> None:
        # The hash of a source's last record is compared as it is; base64 is for the result.
        self._claims: dict[bytes, SourceClaim] = {}
        self._ends: dict[bytes, tuple[int, bytes]] = {}
        self._texts: dict[tuple[str, str], bytes] = {}

    def follow(self, entry: dict[str, Any], seq: int, before: Before | None) -> None:
        """Take in the record of entry `seq` if it continues its source. Raises `EntryFinding`.
        `before` is what precedes the range, where that is known."""
        src = entry["src"]
        names: tuple[str, str] = (src["id"], src["inst"])
        source = self._texts.get(names)
        if source is None:
            source = self._texts[names] = encode({"id": names[0], "inst": names[1]})[1:-1]
        n, prev, last = src["n"], src["prev"].encode(), self._ends.get(source)
        end = None if last is None else (last[0], b2a_base64(last[1], newline=False))
        trusting = before is not None and before.trusting
        if last is None and before is not None:
            end = before.sources.get((names[0].encode(), names[1].encode()))
        known = last is not None or before is not None
        if known and (fault := source_fault(names[0], n, prev, end, trusting=trusting)):
            raise fault
        if last is None:
            self._claims[source] = SourceClaim(seq, entry["eid"].encode(), n, prev, n, b"")
        self._ends[source] = n, record_hash(entry)

    def take(self, columns: Columns, first: int, before: Before | None = None) -> bool:
        """Take in the records of lines in the known form, numbered from `first` on, if each
        continues its source; else none of them. `before` as for `follow`."""
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
                claim = b"%b=" % prev if prev else b""
                if _IS_HASH.fullmatch(prev) is None or not _continues(
                    source, number, claim, before
                ):
                    return False
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


def _continues(source: bytes, n: int, prev: bytes, before: Before | None) -> bool:
    """Whether the first record of a source in a range follows what is `before` it, as far as that
    is known."""
    if before is None:
        return True
    names = orjson.loads(b"{%b}" % source)
    end = before.sources.get((names["id"].encode(), names["inst"].encode()))
    return source_fault(names["id"], n, prev, end, trusting=before.trusting) is None
