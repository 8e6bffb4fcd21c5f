"""The lines of an export file: section "The export file" of the format document."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, BinaryIO, NamedTuple

from tests.second_verifier import encoding
from tests.second_verifier.entry_rules import is_time
from tests.second_verifier.findings import Broken, NotAnExport
from tests.second_verifier.notes import base64_of, hash_of, is_origin

LONGEST = 16 * 1024 * 1024
LONGEST_PARSED = 1024 * 1024
_MEMBERS: dict[str, set[str]] = {
    "frontier": {"frontier", "size"},
    "damaged": {"damaged"},
    "checkpoint": {"checkpoint"},
    "hashes": {"hashes"},
    "purge": {"purge", "proof"},
    "erasure": {"erasure", "proof"},
    "end": {"end", "entries", "sha256"},
    "truncated": {"truncated"},
}
_NUMBERS = ("first", "from", "to")


class Line(NamedTuple):
    """A line after the header: its kind, and what it holds."""

    kind: str
    value: Any
    openings: bytes | None = None


class ExportFile:
    """Reads an export once, from its beginning to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = sha256()
        self.entries = 0
        self.header = self._read_header()

    def lines(self) -> Iterator[Line]:
        """Every line after the header, up to the end line. Raises `Broken`."""
        while True:
            before = self._digest.hexdigest()
            raw = self._next()
            line = self._parse(raw)
            if line.kind == "end":
                self._finish(line.value, before)
                return
            if line.kind == "truncated":
                raise Broken("file_truncated", f"the export stopped: {line.value['truncated']}")
            self.entries += line.kind in ("entry", "damaged")
            yield line

    def _read_header(self) -> dict[str, Any]:
        raw = self._file.readline(LONGEST_PARSED + 2)
        if len(raw) > LONGEST_PARSED + 1:
            raise NotAnExport("the first line is longer than 1 MiB")
        self._digest.update(raw)
        try:
            header = encoding.read(raw)
        except encoding.Unreadable as error:
            raise NotAnExport(str(error)) from error
        if not isinstance(header, dict) or header.get("format") != "sluice-log/1":
            raise NotAnExport("the first line is no header")
        numbers: list[Any] = [header.get(name) for name in _NUMBERS]
        if not raw.endswith(b"\n") or any(type(number) is not int for number in numbers):
            raise NotAnExport("the header is not complete")
        if not 0 <= numbers[0] <= numbers[1] <= numbers[2]:
            raise NotAnExport("the header's numbers contradict each other")
        if not all(isinstance(header.get(name), str) for name in ("log", "origin")):
            raise NotAnExport("the header says no log")
        if not is_origin(header["origin"], header["log"]):
            raise NotAnExport("the header's origin is one of another log")
        if header.get("openings") not in ("all", "none") or not _are_keys(header.get("keys")):
            raise NotAnExport("the header's openings or keys")
        if header.get("part", True) is not True:
            raise NotAnExport("the header's part")
        if not is_time(header.get("made_at")):
            raise NotAnExport("the header says no time")
        return header

    def _next(self) -> bytes:
        raw = self._file.readline(LONGEST + 1)
        self._digest.update(raw)
        if len(raw) > LONGEST:
            raise Broken("file_malformed", "a line of more than 16 MiB")
        if not raw.endswith(b"\n"):
            raise Broken("file_truncated", "the file ends without its last line")
        return raw[:-1]

    def _parse(self, raw: bytes) -> Line:
        if raw.startswith(b'{"entry":') and raw.endswith(b"}"):
            return self._entry(raw)
        if raw.startswith(b'{"policy":') and raw.endswith(b"}"):
            return Line("policy", raw[len(b'{"policy":') : -1])
        if len(raw) > LONGEST_PARSED and not raw.startswith(b'{"damaged":'):
            raise Broken("file_malformed", "a line of more than 1 MiB")
        try:
            value = encoding.read(raw)
            canonical = encoding.write(value) == raw
        except ValueError as error:
            raise Broken("file_malformed", "a line that is not in the table") from error
        kind = next((name for name in _MEMBERS if isinstance(value, dict) and name in value), "")
        if not kind or not canonical or set(value) != _MEMBERS[kind]:
            raise Broken("file_malformed", "a line that is not in the table")
        if not _is_well_formed(kind, value):
            raise Broken("file_malformed", f"the line of kind `{kind}`")
        return Line(kind, value)

    def _entry(self, raw: bytes) -> Line:
        if self.header["openings"] == "none":
            return Line("entry", raw[len(b'{"entry":') : -1])
        entry, mark, openings = raw[len(b'{"entry":') : -1].rpartition(b',"openings":')
        if not mark:
            raise Broken("file_malformed", "an entry without its openings")
        return Line("entry", entry, openings)

    def _finish(self, end: dict[str, Any], digest: str) -> None:
        if end["entries"] != self.entries:
            raise Broken("file_malformed", "the last line counts other entries")
        if self._file.read(1):
            raise Broken("file_malformed", "something follows the last line")
        if end["sha256"] != digest:
            raise Broken("file_digest_mismatch", "the last line describes other bytes")


def _is_well_formed(kind: str, value: dict[str, Any]) -> bool:
    if kind in ("checkpoint", "truncated"):
        return isinstance(value[kind], str)
    if kind == "end":
        counted = _is_number(value["entries"]) and isinstance(value["sha256"], str)
        return value["end"] is True and counted
    if kind == "damaged":
        return _is_row(value["damaged"])
    if kind in ("purge", "erasure"):
        proof, text = value["proof"], isinstance(value[kind], str)
        return text and (proof is None or (isinstance(proof, list) and all(map(hash_of, proof))))
    hashes = isinstance(value[kind], list) and all(hash_of(each) for each in value[kind])
    return hashes and _is_number(value.get("size", 0))


def _is_row(row: Any) -> bool:
    if not isinstance(row, dict) or set(row) != {"entry", "openings", "seq"}:
        return False
    given = [row[name] for name in ("entry", "openings")]
    readable = all(each is None or base64_of(each) is not None for each in given)
    return readable and _is_number(row["seq"])


def _is_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_keys(keys: Any) -> bool:
    return isinstance(keys, list) and all(
        isinstance(each, dict)
        and isinstance(each.get("key"), str)
        and (each.get("endorsement") is None or isinstance(each["endorsement"], dict))
        for each in keys
    )
