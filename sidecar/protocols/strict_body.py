"""Bodies that are judged: read so that everyone reads them alike, or not at all (data-sources.md
R3, R6). Pure. Knows JSON; knows no protocol.

Each reader takes the body as sent, its media type and the request's budget, and raises `Malformed`.
"""

from collections.abc import Callable
from typing import Any

import orjson

from policies.ground.errors import Malformed
from policies.ground.json_body import parse_object, refuse_duplicates
from sidecar.protocols.budget import Budget, OverBudget

BodyParser = Callable[[bytes, str | None, Budget], Any]

_NDJSON = frozenset(("application/x-ndjson", "application/json"))


MAX_BRACKETS = 100_000
"""`{` and `[` in a JSON body or answer, in texts too, and `<` in one of XML: each may be an object
to make. The parser makes them in one go, in which nothing else runs, and the garbage collector
walks them in another."""


MAX_DEPTH = 200
"""Levels of a JSON body. A body that is judged may be written again with a condition around it, and
orjson reads 1,024 levels but writes 254."""

_LEVELS_LEFT = 254 - MAX_DEPTH


def has_too_many_brackets(raw: bytes) -> bool:
    """Whether it has more than `MOST_BRACKETS`."""
    if len(raw) <= MAX_BRACKETS:
        return False
    if raw[:64].lstrip().startswith((b"<", b"\xef\xbb\xbf<")):
        return raw.count(b"<") > MAX_BRACKETS
    return raw.count(b"{") + raw.count(b"[") > MAX_BRACKETS


def json_object(raw: bytes, media: str | None, _budget: Budget | None = None) -> dict[str, Any]:
    """One JSON object, no key twice."""
    if has_too_many_brackets(raw):
        raise OverBudget(f"the body has more than {MAX_BRACKETS} brackets")
    value = parse_object(raw, media, unique=False)
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH:
        _check_depth(value)
    # Every member has its colon, so with as many members as colons none was lost: the slower look
    # for a key that stands twice is only for bodies that hold colons elsewhere.
    if raw.count(b":") != _members(value):
        refuse_duplicates(raw)
    return value


def optional_json_object(
    raw: bytes, media: str | None, _budget: Budget | None = None
) -> dict[str, Any] | None:
    """As `json_object`; None where there is no body."""
    return json_object(raw, media) if raw.strip() else None


def json_lines(raw: bytes, media: str | None, budget: Budget) -> list[dict[str, Any]]:
    """One JSON object a line, as bulk interfaces take them; the last line may end the body."""
    kind = None if media is None else media.partition(";")[0].strip().lower()
    if kind is not None and kind not in _NDJSON:
        raise Malformed("the body's content type is not `application/x-ndjson`")
    # Counted before anything is split or parsed: a body of `{}` lines has a million of them.
    budget.charge_parts(raw.count(b"\n") + (not raw.endswith(b"\n")))
    lines = raw.split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    # An empty line stands for an empty object in some places and for nothing in others.
    return [json_object(line, None) for line in lines]


def _check_depth(value: Any) -> None:
    # The writer counts levels many times faster than a walk would.
    for _ in range(_LEVELS_LEFT):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Malformed("the body is nested too deeply") from error


def _members(value: dict[str, Any]) -> int:
    """How many members the objects in `value` have, or fewer: a long list of numbers is not
    searched for objects, which can only send a body to the slower look."""
    count = 0
    pending: list[Any] = [value]
    while pending:
        node = pending.pop()
        if type(node) is dict:
            count += len(node)
            pending += [each for each in node.values() if type(each) in (dict, list)]
        elif node and type(node[0]) in (dict, list):
            pending += [each for each in node if type(each) in (dict, list)]
    return count
