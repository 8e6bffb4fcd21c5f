"""The mark in the record of a decision about a source that a statement reads, such as a relation in
a statement of SQL. One statement may read many sources, and each has a record of its own: the mark
joins them. Knows no language of statements (`trail/FORMAT.md`, Statements).
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import orjson

from policies.ground.canonical import b64, encode
from policies.ground.masking import Masked, masked_json
from policies.ground.masking.recognizer import UNREAD

Look = Literal["parse", "bind", "execute", "held"]
"""When it was first seen that a statement reads a source: after its `Parse`, its `Bind` or an
`Execute`; or `held`: an earlier statement of the session had read it, and this one may have too."""

MAX_PARAMETERS = 16 * 1024
"""The most bytes that the recorded values of a statement's parameters may have, in JSON."""

BINARY = "BINARY"
"""The rule by which masking takes out a binary value: personal data can't be found in one."""

_NAME = "parameters"
_BASE64 = "base64"


class StatementMark(NamedTuple):
    """What the record of a decision says of the statement that reads the source.

    `id`, a UUIDv7, is the same in all records of one execution of a statement. `digest` is SHA-256
    of the exact text, in hex; the record commits to it. `fingerprint`, 16 hex digits, is the same
    for statements that differ in constants alone; None if the text has no structure that could be
    read. `look` is None if the statement was refused before anybody looked. `parameters` comes from
    `parameters_text`, and `masked` is its masked form, made before the record is
    (`policies.trail.masked_ahead`).
    """

    id: str
    digest: str
    fingerprint: str | None = None
    look: Look | None = None
    parameters: str | None = None
    masked: Masked | None = None


def parameters_text(values: Sequence[str | bytes | None]) -> str | None:
    """Return the values of a statement's parameters, in their order, as the text of a JSON list;
    None if there are none. An item is null, the text of a value, `{"base64": …}` for a binary
    value, or `{"bytes": n}` for a value of n bytes for which there is no room any more. Lone
    surrogates become `?`."""
    room, items = MAX_PARAMETERS, list[Any]()
    for value in values:
        if value is None:
            items.append(None)
            continue
        raw = value if isinstance(value, bytes) else value.encode(errors="replace")
        if len(raw) > room:  # neither form is shorter than this
            items.append({"bytes": len(raw)})
            continue
        item = {_BASE64: b64(raw)} if isinstance(value, bytes) else raw.decode()
        size = len(encode(item))
        if size > room:
            items.append({"bytes": len(raw)})
        else:
            items.append(item)
            room -= size
    return encode(items).decode() if items else None


def maskable(parameters: str) -> dict[str, Any]:
    """Return the values as an object whose texts can be masked (`masked_json`). Values are masked
    one by one, since an escape in the text of the list could hide where one begins. Of a binary
    value only the size is left."""
    return {_NAME: [_sized(item) for item in orjson.loads(parameters)]}


def _sized(item: Any) -> Any:
    if isinstance(item, dict) and _BASE64 in item:
        text: str = item[_BASE64]
        return {"bytes": len(text) // 4 * 3 - text.count("=")}
    return item


def as_masked(parameters: str, found: tuple[dict[str, Any], tuple[str, ...]]) -> Masked:
    """Return the masked form of `parameters`. `found` is its `maskable` object after masking, with
    the labels."""
    tree, labels = found
    # A quote within a text is escaped, so this is no text.
    if '{"base64":' in parameters:
        labels = tuple(sorted({*labels, BINARY}))
    # An object that could not be read in time comes back without its member.
    return Masked(encode(tree.get(_NAME, [UNREAD.text])).decode(), labels)


def masked_parameters(parameters: str) -> Masked:
    """Mask the values without pauses."""
    return as_masked(parameters, masked_json(maskable(parameters)))
