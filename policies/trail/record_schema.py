"""The schema of records from enforcement points. It refuses records that the log could never index
or show.

The log forgets nothing. A record that the event list can't show would break that list forever, and
a name that a database can't hold would block its sidecar's whole queue. So both are refused on
arrival. The members of a decision come from the table of fields (`policies.trail.fields`); those of
the other kinds are listed here. Unknown members pass.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from policies.definitions.model import MAX_CANDIDATES
from policies.ground.canonical import MAX_IDENTIFIER, identifier_fault
from policies.retrieval import SOURCE_TYPE
from policies.trail.fields import (
    CANDIDATE,
    COMMITTED,
    REQUEST,
    RESPONSE,
    STATEMENT,
    Type,
    members,
)

_Test = Callable[[object], bool]
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


def is_name(value: object) -> bool:
    if type(value) is str and 0 < len(value) <= MAX_IDENTIFIER and value.isprintable():
        return True  # the fast path that nearly every name takes
    return identifier_fault(value) is None


def _text(value: object) -> bool:
    return isinstance(value, str)


def _source_type(value: object) -> bool:
    return type(value) is str and SOURCE_TYPE.match(value) is not None


def _count(value: object) -> bool:
    return type(value) is int  # not `isinstance`: `True` is an `int` too


def _digest(value: object) -> bool:
    return type(value) is str and _DIGEST.match(value) is not None


def _object(value: object) -> bool:
    return isinstance(value, dict)


def _verdict(value: object) -> bool:
    return value in ("ALLOW", "DENY")


def _answer(value: object) -> bool:
    return value in ("ALLOW", "DENY", "ERROR")


def _candidates(value: object) -> bool:
    """Return whether `value` is a list of 1 to `MAX_CANDIDATES` items in the form of
    `policies.candidates.CandidateDecision`."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= MAX_CANDIDATES
        and all(isinstance(each, dict) and _candidate(each) for each in value)
    )


def _candidate(item: dict[str, object]) -> bool:
    return all(
        (optional and name not in item) or test(item.get(name))
        for name, test, optional in _CANDIDATE
    )


def _maybe(test: _Test) -> _Test:
    return lambda value: value is None or test(value)


def _true(value: object) -> bool:
    return value is True


_Rules = tuple[tuple[tuple[str, ...], str, _Test], ...]

# Each rule: the path within `pub`, the member's name, and the test of its value.
_TESTS: dict[Type, _Test] = {
    Type.NAME: is_name,
    Type.TEXT: _text,
    Type.SOURCE_TYPE: _source_type,
    Type.VERDICT: _verdict,
    Type.ANSWER: _answer,
    Type.COUNT: _count,
    Type.TRUE: _true,
    Type.DIGEST: _digest,
    Type.OBJECT: _object,
    Type.ITEMS: _candidates,
}
_CANDIDATE = tuple((each.name, _TESTS[each.type], each.optional) for each in members(CANDIDATE))
"""The members of a candidate's item: each one's name, the test of its value, and whether it may be
absent."""


def _decision() -> _Rules:
    """Return a rule for each field of a decision, required fields first."""
    objects = {"pub": (), REQUEST: ("request",), RESPONSE: ("response",), STATEMENT: ("statement",)}
    return tuple(
        (path, each.name, _maybe(_TESTS[each.type]) if optional else _TESTS[each.type])
        for parent, path in objects.items()
        for optional in (False, True)
        for each in members(parent)
        if each.optional is optional and each.path not in objects and each.type is not Type.UNREAD
    )


_LINEAGE: _Rules = (
    ((), "action_type", _text),
    ((), "masking", _maybe(_true)),
    ((), "outcome", _maybe(_text)),
    ((), "detail", _maybe(_object)),
    (("event",), "id", is_name),
)
# `revision` is not required: other enforcement points may beat without a policy set.
_HEARTBEAT: _Rules = (((), "revision", _maybe(_count)),)
_GAP: _Rules = (((), "reason", _text),)
RULES: dict[str, _Rules] = {
    "decision": _decision(),
    "lineage": _LINEAGE,
    "gap": _GAP,
    "heartbeat": _HEARTBEAT,
}
"""The kinds of records that an enforcement point may send, with the rules of each."""

# The objects in `pub` that may be absent, and are checked if they are there.
_OPTIONAL = frozenset(
    each.name for each in members("pub") if each.optional and each.type is Type.OBJECT
)
# Members that `policies.trail.entry.index_of` reads from every kind.
_INDEXED = ("request", "response", "event")
_OPENED = {each.name: _TESTS[each.type] for each in members(COMMITTED)}


class _KindRules(NamedTuple):
    """The rules of one kind of record, in the form in which they are applied. `foreign` are the
    indexed members that records of this kind must not have; `groups` are the tests of each object
    in `pub` (None for `pub` itself)."""

    foreign: tuple[str, ...]
    groups: tuple[tuple[str | None, tuple[tuple[str, _Test], ...]], ...]


def _kind(rules: _Rules) -> _KindRules:
    groups: dict[str | None, list[tuple[str, _Test]]] = {}
    for path, name, test in rules:
        groups.setdefault(path[0] if path else None, []).append((name, test))
    foreign = tuple(member for member in _INDEXED if member not in groups)
    return _KindRules(foreign, tuple((group, tuple(tests)) for group, tests in groups.items()))


_KINDS = {kind: _kind(rules) for kind, rules in RULES.items()}


def pub_fault(kind: str, pub: dict[str, Any]) -> str | None:
    """Return what is wrong with `pub`, the fields in clear, of a record of `kind`; None if nothing
    is."""
    foreign, groups = _KINDS[kind]
    for member in foreign:
        if member in pub:
            return f"`pub` of a `{kind}` may not hold `{member}`"
    for group, tests in groups:
        members: Any = pub if group is None else pub.get(group)
        if members is None and group in _OPTIONAL:
            continue
        is_object = isinstance(members, dict)
        for name, test in tests:
            # A missing object fails on its first member, so the message names a member.
            if not (is_object and test(members.get(name))):
                where = f"{group}.{name}" if group else name
                return f"`pub.{where}` is missing or has the wrong type"
    return None


def masked_fault(masked: object, pub: dict[str, Any]) -> str | None:
    """Return what is wrong with a record's `masked`; None if nothing is. It must be a list `[[path,
    rule]]`, and a record whose list isn't empty must say that masking was on."""
    if not isinstance(masked, list):
        return "`masked` must be a list"
    for each in masked:
        if not (isinstance(each, list) and len(each) == 2 and all(map(is_name, each))):
            return "`masked` must be a list of `[path, rule]`"
    return "`masked` needs `pub.masking` to be true" if masked and not pub.get("masking") else None


def opening_fault(path: str, value: object) -> str | None:
    """Return what is wrong with the value of the opening of `path`; None if nothing is."""
    if path == "detail":
        return None if _json_object(value) else "`detail` is not the text of a JSON object"
    test = _OPENED.get(path)
    return None if test is None or test(value) else f"`{path}` has the wrong type"


def _json_object(value: object) -> bool:
    try:
        return isinstance(value, str) and isinstance(orjson.loads(value), dict)
    except orjson.JSONDecodeError:
        return False
