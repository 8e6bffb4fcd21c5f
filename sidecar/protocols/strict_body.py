"""Reads bodies that a decision depends on, and refuses those that two readers could understand
differently (`protocols/RULES.md`, Bodies and Unreadable bodies). Pure. Knows JSON, but no protocol.

Each reader takes the body as sent, its media type and the request's budget, and raises `Malformed`.
"""

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from policies.ground.errors import Malformed
from policies.ground.json_body import parse_object, refuse_duplicates
from sidecar.protocols.budget import Budget, OverBudget

BodyParser = Callable[[bytes, str | None, Budget], Any]

_NDJSON = frozenset(("application/x-ndjson", "application/json"))

MAX_BRACKETS = 100_000
"""The most `{` and `[` in a JSON body or response, including those inside strings, or `<` in XML.
Each may be an object to create. No other task can run while the parser creates them, nor while the
garbage collector then walks them."""

MAX_MEMBERS = 100_000
"""The most members of one parsed JSON text, estimated from its colons and quotation marks. One call
into C creates them all, and the search for equal keys reads them again."""

MAX_DEPTH = 200
"""The most levels of a JSON body. The sidecar may write the body again with a condition around it,
and orjson reads 1,024 levels but writes only 254."""

_WRITABLE_DEPTH = 254

_PIECE = 10_000
"""The number of values that are looked at between two checks whether the request has ended."""


def has_too_many_brackets(raw: bytes) -> bool:
    """Return whether `raw` has more than `MAX_BRACKETS` brackets."""
    if len(raw) <= MAX_BRACKETS:
        return False
    # XML may begin with a byte order mark, which the XML reader refuses later.
    if raw[:64].lstrip().startswith((b"<", b"\xef\xbb\xbf<")):
        return raw.count(b"<") > MAX_BRACKETS
    return raw.count(b"{") + raw.count(b"[") > MAX_BRACKETS


def json_object(raw: bytes, media_type: str | None, budget: Budget | None = None) -> dict[str, Any]:
    """Return one JSON object, with no key twice."""
    value = _object(raw, media_type, MAX_DEPTH)
    # Each call into C below takes up to 0.1 s of CPU time for the largest bodies.
    check = _unchecked if budget is None else budget.check
    check()
    # RFC 8259 section 4 leaves open which of two equal keys counts, so a data source may use a
    # different one from the one judged here. The parser silently keeps the last. Every member has a
    # colon, so if there are as many members as colons, no duplicate was dropped. The other ways are
    # for bodies whose strings contain colons too, and cost more: vectors are long.
    if raw.count(b":") != _count_members(value, check):
        _refuse_duplicates(raw, value, check)
        check()
    return value


def _unchecked() -> None:
    """A check that does nothing, for a body that is read to the end in any case."""


def short_object(raw: bytes, max_depth: int) -> dict[str, Any]:
    """Like `json_object`, for bodies of few members and no vectors."""
    value = _object(raw, None, max_depth)
    _refuse_duplicates(raw, value, _unchecked)
    return value


def _object(raw: bytes, media_type: str | None, max_depth: int) -> dict[str, Any]:
    _limit_brackets(raw)
    _limit_members(raw)
    value = parse_object(raw, media_type, unique=False)
    # A body with fewer brackets than levels can't be too deep, and most have fewer.
    if raw.count(b"{") + raw.count(b"[") > max_depth:
        _check_depth(value, max_depth)
    return value


def _limit_brackets(raw: bytes) -> None:
    if len(raw) > MAX_BRACKETS and has_too_many_brackets(raw):
        raise OverBudget(f"the body has more than {MAX_BRACKETS} brackets")


def _limit_members(raw: bytes) -> None:
    # A member has a colon and two quotation marks at least. Both are counted, since the text of a
    # document may have many of either.
    if len(raw) <= MAX_MEMBERS or raw.count(b":") <= MAX_MEMBERS:
        return
    if raw.count(b'"') // 2 > MAX_MEMBERS:
        raise OverBudget(f"the body has more than {MAX_MEMBERS} members in one JSON object")


def _refuse_duplicates(raw: bytes, value: dict[str, Any], check: Callable[[], None]) -> None:
    # Every key has two quotation marks, so if all of them are still there, no duplicate was
    # dropped: written again, a string has as many, unless it was written with this escape.
    if b"\\u0022" in raw or raw.count(b'"') != orjson.dumps(value).count(b'"'):
        check()
        refuse_duplicates(raw)


def optional_json_object(
    raw: bytes, media_type: str | None, budget: Budget | None = None
) -> dict[str, Any] | None:
    """Like `json_object`; None if there is no body."""
    return json_object(raw, media_type, budget) if raw.strip() else None


def json_lines(raw: bytes, media_type: str | None, budget: Budget) -> list[dict[str, Any]]:
    """Return one JSON object per line, the form of bulk APIs. The last line may lack its
    newline."""
    kind = None if media_type is None else media_type.partition(";")[0].strip().lower()
    if kind is not None and kind not in _NDJSON:
        raise Malformed(f"the body's content type is `{kind[:64]}`, not `application/x-ndjson`")
    # Charged before anything is split or parsed: a body of `{}` lines may have a million of them.
    budget.charge_parts(raw.count(b"\n") + (not raw.endswith(b"\n")))
    _limit_brackets(raw)  # of all lines together
    lines = raw.split(b"\n")
    if lines and not lines[-1].strip():
        lines.pop()
    # Some servers read an empty line as an empty object, others skip it: here it is an error.
    return [json_object(line, None, budget) for line in lines]


def _check_depth(value: Any, max_depth: int) -> None:
    # orjson counts levels many times faster than a walk in Python would.
    for _ in range(_WRITABLE_DEPTH - max_depth):
        value = [value]
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Malformed(f"the body is nested too deeply: more than {max_depth} levels") from error


def _count_members(value: dict[str, Any], check: Callable[[], None]) -> int:
    """Return the number of members of the objects in `value`, or a lower one: a list that begins
    with neither an object nor a list isn't searched. A count that is too low only leads to the slow
    search. Calls `check` now and then, which may raise."""
    count = 0
    pending: list[Any] = [value]
    while pending:
        check()
        node = pending.pop()
        if type(node) is dict:
            count += len(node)
            pending += [each for each in node.values() if type(each) in (dict, list)]
        elif node and type(node[0]) in (dict, list):
            for piece in _pieces(node):
                check()
                pending += [each for each in piece if type(each) in (dict, list)]
    return count


def _pieces(values: list[Any]) -> Iterable[list[Any]]:
    if len(values) <= _PIECE:
        return (values,)
    return (values[at : at + _PIECE] for at in range(0, len(values), _PIECE))
