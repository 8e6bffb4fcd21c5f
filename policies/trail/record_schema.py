"""What a record from elsewhere must say, so that it can be indexed and shown for good.

The log forgets nothing: a record that the list of events can't show would break that list for ever,
and a name that a database can't hold would hold up its sidecar's whole queue. So both are refused
at the door. Knows the members of each kind; members it doesn't know are let through.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from policies.ground.json_body import MAX_IDENTIFIER, identifier_fault
from policies.retrieval import SOURCE_TYPE

_Judge = Callable[[object], bool]


def is_name(value: object) -> bool:
    if type(value) is str and 0 < len(value) <= MAX_IDENTIFIER and value.isprintable():
        return True  # as nearly every one is
    return identifier_fault(value) is None


def _text(value: object) -> bool:
    return isinstance(value, str)


def _source_type(value: object) -> bool:
    return type(value) is str and SOURCE_TYPE.match(value) is not None


def _count(value: object) -> bool:
    return type(value) is int


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _verdict(value: object) -> bool:
    return value in ("ALLOW", "DENY")


def _maybe(judge: _Judge) -> _Judge:
    return lambda value: value is None or judge(value)


def _true(value: object) -> bool:
    return value is True


_Rules = tuple[tuple[tuple[str, ...], str, _Judge], ...]

# Where it stands in `pub`, how it is called there, what it must be.
_DECISION: _Rules = (
    ((), "context_hash", _text),
    ((), "facts", _object),
    ((), "masking", _maybe(_true)),
    (("request",), "agent_role", is_name),
    (("request",), "source_id", is_name),
    (("request",), "source_type", _source_type),
    (("request",), "sensitivity_level", _text),
    (("request",), "agent_id", _maybe(is_name)),
    (("request",), "session_id", _maybe(is_name)),
    (("request",), "task_type", _maybe(_text)),
    (("response",), "decision", _verdict),
    (("response",), "policy_name", is_name),
    (("response",), "reason", _text),
    (("response",), "check", _maybe(_text)),
    (("response",), "policy_version", _maybe(_count)),
)
_LINEAGE: _Rules = (
    ((), "action_type", _text),
    ((), "masking", _maybe(_true)),
    ((), "outcome", _maybe(_text)),
    ((), "detail", _maybe(_object)),
    (("event",), "id", is_name),
)
_GAP: _Rules = (((), "reason", _text),)
RULES: dict[str, _Rules] = {
    "decision": _DECISION,
    "lineage": _LINEAGE,
    "gap": _GAP,
    "heartbeat": (),
}
"""The kinds that an enforcement point may send, and what each must say."""

# Members that `policies.trail.entry.index_of` reads, whatever the kind.
_INDEXED = ("request", "response", "event")
_OPENED: dict[str, _Judge] = {"user_id": is_name, "query": _text}


class _KindRules(NamedTuple):
    """A kind's rules as they are applied: `foreign` are members that it has not, `places` where in
    `pub` (None: in itself) with what must stand there."""

    foreign: tuple[str, ...]
    places: tuple[tuple[str | None, tuple[tuple[str, _Judge], ...]], ...]


def _kind(rules: _Rules) -> _KindRules:
    places: dict[str | None, list[tuple[str, _Judge]]] = {}
    for path, name, judge in rules:
        places.setdefault(path[0] if path else None, []).append((name, judge))
    foreign = tuple(member for member in _INDEXED if member not in places)
    return _KindRules(foreign, tuple((place, tuple(judged)) for place, judged in places.items()))


_KINDS = {kind: _kind(rules) for kind, rules in RULES.items()}


def pub_fault(kind: str, pub: dict[str, Any]) -> str | None:
    """What is wrong with the fields in clear of a record of `kind`, or None."""
    foreign, places = _KINDS[kind]
    for member in foreign:
        if member in pub:
            return f"`pub` of a `{kind}` has no `{member}`"
    for at, judged in places:
        place: Any = pub if at is None else pub.get(at)
        known = isinstance(place, dict)
        for name, judge in judged:
            if not (known and judge(place.get(name))):
                where = f"{at}.{name}" if at else name
                return f"`pub.{where}` is missing or not of its type"
    return None


def masked_fault(masked: object, pub: dict[str, Any]) -> str | None:
    """What is wrong with the list of what was masked, or None: `[[path, rule]]`, and a record that
    says of itself that masking was on where anything stands in it."""
    if not isinstance(masked, list):
        return "`masked` is a list"
    for each in masked:
        if not (isinstance(each, list) and len(each) == 2 and all(map(is_name, each))):
            return "`masked` is a list of `[path, rule]`"
    return "`masked` without `pub.masking`" if masked and not pub.get("masking") else None


def opening_fault(path: str, value: object) -> str | None:
    """What is wrong with an opened value, or None."""
    if path == "detail":
        return None if _json_object(value) else "`detail` is not the text of a JSON object"
    judge = _OPENED.get(path)
    return None if judge is None or judge(value) else f"`{path}` is not of its type"


def _json_object(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False
