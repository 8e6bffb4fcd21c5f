"""The file `report.json`, format `sluice-report/1`: its members, and their bytes. Proves nothing.

`policies/trail/README.md` ("A report") describes the format.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from policies.ground.canonical import b64, unb64
from policies.trail.proofs.tree_proofs import MAX_HASHES

FORMAT = "sluice-report/1"
MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of a `report.json`."""
_HASH = 32


class BadReport(ValueError):
    """the bytes are not a report"""


class Item(NamedTuple):
    """An entry's stored bytes, and its openings as stored, None if the export left them out.
    `proof` are the hashes of its inclusion proof (RFC 9162, 2.1.3); None if the checkpoint does not
    cover it."""

    entry: bytes
    openings: bytes | None
    proof: list[bytes] | None


@dataclass(slots=True)
class Evidence:
    """A report. `selection` is what was asked for, by option. `keys` are those that the export
    claims, as in its header. `note` is the checkpoint that the proofs lead to, None without one.
    `export` describes the file: `entries`, `from`, `to`, `made_at`, `sha256`."""

    log: str
    origin: str
    selection: dict[str, str]
    export: dict[str, Any]
    keys: list[dict[str, Any]]
    note: str | None
    items: list[Item] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The bytes of `report.json`: the same for the same report."""
        wire = {
            "format": FORMAT,
            "log": self.log,
            "origin": self.origin,
            "selection": self.selection,
            "export": self.export,
            "keys": self.keys,
            "checkpoint": self.note,
            "entries": [
                {
                    "entry": item.entry.decode(),
                    "openings": None if item.openings is None else item.openings.decode(),
                    "proof": None if item.proof is None else [b64(each) for each in item.proof],
                }
                for item in self.items
            ],
        }
        return orjson.dumps(wire, option=orjson.OPT_INDENT_2) + b"\n"


def begins(first: bytes) -> bool:
    """Whether a file with these first bytes claims to be a report."""
    return b"".join(first[:100].split()).startswith(b'{"format":"sluice-report/1"')


def parse(raw: bytes) -> Evidence:
    """The report in the bytes, nothing of it verified. Raises `BadReport`."""
    if len(raw) > MAX_BYTES:
        raise BadReport(f"it has more than {MAX_BYTES} bytes")
    try:
        wire = orjson.loads(raw)
        if wire["format"] != FORMAT:
            raise BadReport(f"its format is not `{FORMAT}`")
        for name in ("log", "origin"):
            _is(wire[name], str)
        for name in ("selection", "export"):
            _is(wire[name], dict)
        _is(wire["keys"], list)
        for key in wire["keys"]:
            _is(key["key"], str)
        _is(wire["checkpoint"], (str, type(None)))
        items = [_item(each) for each in _is(wire["entries"], list)]
    except (ValueError, TypeError, LookupError) as error:
        raise BadReport(f"it is not in the form of one: {str(error)[:200]}") from error
    return Evidence(
        wire["log"],
        wire["origin"],
        wire["selection"],
        wire["export"],
        wire["keys"],
        wire["checkpoint"],
        items,
    )


def _item(wire: Any) -> Item:
    entry, openings, proof = wire["entry"], wire["openings"], wire["proof"]
    _is(entry, str)
    _is(openings, (str, type(None)))
    hashes = None if proof is None else [unb64(each) for each in _is(proof, list)]
    if hashes is not None and (
        len(hashes) > MAX_HASHES or any(len(each) != _HASH for each in hashes)
    ):
        raise BadReport(f"a proof is not of up to {MAX_HASHES} hashes of {_HASH} bytes")
    return Item(entry.encode(), None if openings is None else openings.encode(), hashes)


def _is(value: Any, kind: type | tuple[type, ...]) -> Any:
    if not isinstance(value, kind):
        raise BadReport(f"`{value!r:.60}` has the wrong type")
    return value
