"""Encodes and parses the lines of an export file.

An entry's line holds the stored bytes as they are, so it is joined and split by hand. The other
lines are canonical JSON.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from policies.ground.canonical import b64, encode, micros, unb64
from policies.trail.checkpoint import is_origin_of
from policies.trail.log_file import lines

_ENTRY, _OPENINGS, _POLICY = b'{"entry":', lines.SEPARATOR, b'{"policy":'
_HASH = 32


class BadLine(ValueError):
    """a line is not one of the format"""


class BadHeader(BadLine):
    """a header is too long, or contradicts itself"""


def encode_line(line: lines.Line) -> bytes:
    """Return the line as bytes, with its line feed."""
    if isinstance(line, lines.EntryLine):
        if line.openings is None:
            return b"%b%b}\n" % (_ENTRY, line.entry)
        return b"%b%b%b%b}\n" % (_ENTRY, line.entry, _OPENINGS, line.openings)
    if isinstance(line, lines.PolicyLine):
        return b"%b%b}\n" % (_POLICY, line.document)
    if isinstance(line, lines.HeaderLine):
        return orjson.dumps(_wire(line)) + b"\n"  # unsorted: a file begins with its format
    return encode(_wire(line)) + b"\n"


def parse_line(raw: bytes, with_openings: bool = True) -> lines.Line:
    """Parse the line in `raw`, which has no line feed. `with_openings` is the value in the file's
    header. Raises `BadLine`, and `BadHeader` for a header whose members contradict each other.

    The bytes of an entry, of openings and of a document are not parsed: they may be anything.
    """
    if entry := plain_entry(raw, with_openings):
        return entry
    if raw.startswith(_POLICY) and raw.endswith(b"}"):
        return lines.PolicyLine(raw[len(_POLICY) : -1])
    if len(raw) > lines.MAX_OTHER and not _is_flat(raw):
        raise BadLine(
            f"the line `{raw[:60].decode(errors='replace')}` of {len(raw)} bytes is longer than "
            f"{lines.MAX_OTHER} bytes, and neither an entry, a document nor a damaged row"
        )
    try:
        wire = orjson.loads(raw)
        line = _parsed(wire)
        # One spelling for each line: two readers can't see different things in it.
        if line is not None and (isinstance(line, lines.HeaderLine) or encode(wire) == raw):
            return line
    except BadHeader:
        raise
    except (ValueError, TypeError, LookupError):
        pass
    raise BadLine(f"the line `{raw[:60].decode(errors='replace')}` is not one of `{lines.FORMAT}`")


def plain_entry(raw: bytes, with_openings: bool) -> lines.EntryLine | None:
    """Split the line of an entry; None if `raw` is a line of another kind. Called for nearly every
    line of a file, so it does no more than split."""
    if not (raw.startswith(_ENTRY) and raw.endswith(b"}")):
        return None
    # `tuple.__new__` makes an `EntryLine` without a call of Python code.
    if not with_openings:
        return tuple.__new__(lines.EntryLine, (raw[len(_ENTRY) : -1], None))
    # The last occurrence: an entry may have a member `openings` inside, but openings don't. No
    # text can look like the separator, since its quotes would be escaped.
    entry, found, openings = raw.rpartition(_OPENINGS)
    if not found:
        return None
    return tuple.__new__(lines.EntryLine, (entry[len(_ENTRY) :], openings[:-1]))


def _is_flat(raw: bytes) -> bool:
    """Return whether a long line has the form of a damaged row, with no more values than such a
    line has. Then a parser needs little more memory than the line itself."""
    row = raw.startswith(b'{"damaged":{') and b"[" not in raw
    return row and raw.count(b"{") == 2 and raw.count(b",") == 2


def line_feeds(block: bytes) -> int:
    """Return the number of line feeds in `block`, which is the number of lines that end in it."""
    # Half the time of `bytes.count`, which looks at each byte by itself: lines are long.
    count, at = 0, block.find(b"\n")
    while at >= 0:
        count, at = count + 1, block.find(b"\n", at + 1)
    return count


def _wire(line: lines.Line) -> dict[str, Any]:
    match line:
        case lines.HeaderLine():
            return {
                "format": lines.FORMAT,
                "log": line.log,
                "origin": line.origin,
                "keys": line.keys,
                "first": line.first_kept,
                "from": line.first,
                "to": line.until,
                **({"part": True} if line.part else {}),
                "openings": "all" if line.with_openings else "none",
                "made_at": line.made_at,
            }
        case lines.FrontierLine():
            return {"frontier": _b64s(line.hashes), "size": line.size}
        case lines.DamagedLine():
            given = {"entry": line.entry, "openings": line.openings}
            shown = {name: None if raw is None else b64(raw) for name, raw in given.items()}
            return {"damaged": {**shown, "seq": line.seq}}
        case lines.CheckpointLine():
            return {"checkpoint": line.note}
        case lines.ProofLine():
            return {"hashes": _b64s(line.hashes)}
        case lines.ErasureLine():
            return {"erasure": line.entry, "proof": _proof(line.proof)}
        case lines.PurgeLine():
            return {"purge": line.entry, "proof": _proof(line.proof)}
        case lines.EndLine():
            return {"end": True, "entries": line.entries, "sha256": line.sha256}
        case lines.TruncatedLine():
            return {"truncated": line.reason}
    raise TypeError(f"{type(line).__name__} is joined by hand")


def _parsed(wire: Any) -> lines.Line | None:
    match wire:
        case {"format": str(), **rest}:
            return _header(wire["format"], rest)
        case {"frontier": list(hashes), "size": int(size), **rest} if not rest:
            return lines.FrontierLine(_count(size), _hashes(hashes))
        case {"damaged": {"entry": entry, "openings": openings, "seq": int(seq), **inner}, **rest}:
            if not rest and not inner:
                return lines.DamagedLine(_count(seq), _bytes(entry), _bytes(openings))
        case {"checkpoint": str(note), **rest} if not rest:
            return lines.CheckpointLine(note)
        case {"hashes": list(hashes), **rest} if not rest:
            return lines.ProofLine(_hashes(hashes))
        case {"erasure": str(entry), "proof": list(hashes), **rest} if not rest:
            return lines.ErasureLine(entry, _hashes(hashes))
        case {"erasure": str(entry), "proof": None, **rest} if not rest:
            return lines.ErasureLine(entry, None)
        case {"purge": str(entry), "proof": list(hashes), **rest} if not rest:
            return lines.PurgeLine(entry, _hashes(hashes))
        case {"purge": str(entry), "proof": None, **rest} if not rest:
            return lines.PurgeLine(entry, None)
        case {"end": True, "entries": int(entries), "sha256": str(digest), **rest} if not rest:
            return lines.EndLine(_count(entries), digest)
        case {"truncated": str(reason), **rest} if not rest:
            return lines.TruncatedLine(reason)
    return None


def _header(given_format: str, rest: dict[Any, Any]) -> lines.HeaderLine:
    if given_format != lines.FORMAT:
        raise ValueError(given_format)
    first_kept, first, until = (_count(rest[name]) for name in ("first", "from", "to"))
    openings = rest["openings"]
    if openings not in ("all", "none"):
        raise ValueError(openings)
    log, origin, made_at = rest["log"], rest["origin"], rest["made_at"]
    micros(made_at)
    keys = rest["keys"]
    if not (isinstance(log, str) and isinstance(origin, str) and isinstance(keys, list)):
        raise TypeError(log)
    for key in keys:
        if not isinstance(key["key"], str):
            raise TypeError(key)
    part = "part" in rest
    if part and rest["part"] is not True:
        raise ValueError(rest["part"])
    header = lines.HeaderLine(
        log, origin, keys, first_kept, first, until, openings == "all", made_at, part
    )
    if contradiction := _contradiction(header):
        raise BadHeader(f"the header contradicts itself: {contradiction}")
    return header


def _contradiction(header: lines.HeaderLine) -> str | None:
    """Return the reason why the members of a header can't all be true; None if they can."""
    if header.first_kept > header.first:
        return (
            f"`from` is {header.first}, though the oldest entry kept, `first`, is "
            f"{header.first_kept}"
        )
    if header.first > header.until:
        return f"`from` is {header.first}, larger than `to`, which is {header.until}"
    if not is_origin_of(header.origin, header.log):
        return f"`origin` is `{header.origin:.80}`, which is not one of log `{header.log:.80}`"
    return None


def _count(value: object) -> int:
    # `True` is an instance of `int`.
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else unb64(text)


def _proof(hashes: Sequence[bytes] | None) -> list[str] | None:
    return None if hashes is None else _b64s(hashes)


def _b64s(hashes: Sequence[bytes]) -> list[str]:
    return [b64(each) for each in hashes]


def _hashes(texts: list[str]) -> list[bytes]:
    hashes = [unb64(text) for text in texts]
    if any(len(each) != _HASH for each in hashes):
        raise ValueError("a hash has 32 bytes")
    return hashes
