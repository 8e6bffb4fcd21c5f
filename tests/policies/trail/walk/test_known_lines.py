"""The fast path accepts only what the full check accepts, with the same result."""

import random
import re
from typing import Any

import pytest

from policies.trail.entry import check_entry
from policies.trail.walk import range_walk
from policies.trail.walk.known_lines import LineMatcher, Row
from policies.trail.walk.range_result import RangeResult
from tests.policies.trail.walk.world import lines, mixed_log, range_of
from tests.policies.world import masked_log, statement_log

LINES = lines(mixed_log().rows)
MASKED = lines(masked_log().rows)
STATEMENTS = lines(statement_log().rows)
DECISIONS = [line for line in [*LINES, *MASKED, *STATEMENTS] if b'"kind":"decision"' in line]


def slowly(
    some: list[bytes], monkeypatch: pytest.MonkeyPatch, *, with_openings: bool = True
) -> RangeResult:
    with monkeypatch.context() as patched:
        patched.setattr(LineMatcher, "rows", lambda _form, _block: None)
        return range_of(some, with_openings=with_openings)


def rows(*some: bytes) -> list[Row] | None:
    block = b"\n%b\n" % b"\n".join(some)
    return LineMatcher(block).rows(block)


def test_decisions_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    following = [line for line in DECISIONS if b'"prev":"","pub"' not in line]
    found = rows(*following)
    assert found is not None
    assert len(found) == len(following) >= 20
    assert rows(*following, b"") is None
    checked = []

    def counted(raw: bytes, entry: Any) -> bool:
        checked.append(raw)
        return check_entry(raw, entry)

    monkeypatch.setattr(range_walk, "check_entry", counted)
    range_of(LINES)
    # The full check took the range's first line, and what is no decision.
    assert [raw for raw in checked if b'"kind":"decision"' in raw] == checked[:1]
    assert len(checked) <= len(LINES) - 20


@pytest.mark.parametrize("some", [LINES, MASKED, STATEMENTS], ids=["mixed", "masked", "statements"])
def test_either_path_gives_the_same_result(
    some: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = [re.sub(rb',"openings":\{.*\}\}$', b"}", line) for line in some]
    for each, opened in ((some, True), (bare, False)):
        found = range_of(each, with_openings=opened)
        assert found == slowly(each, monkeypatch, with_openings=opened)
        assert found.finding is None


def mutated(line: bytes, rng: random.Random) -> bytes:
    raw = bytearray(line)
    at = rng.randrange(len(raw))
    kind = rng.randrange(7)
    if kind == 0:
        raw[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del raw[at]
    elif kind == 2:
        raw.insert(at, rng.choice(b' "\\,{}[]0:1.eE-\x00\x7f\xc3\xa9'))
    elif kind == 3:
        to = rng.randrange(at, min(at + 40, len(raw)))
        raw[at:at] = raw[at:to]
    elif kind == 4:
        to = rng.randrange(at, min(at + 40, len(raw)))
        del raw[at:to]
    elif kind == 5:
        members = re.findall(rb'"[a-z_]+":', line)
        old, new = rng.choice(members), rng.choice(members)
        return line.replace(old, new, 1)
    else:
        numbers = [match.span() for match in re.finditer(rb"(?<=:)\d+(?=[,}])", line)]
        begin, end = rng.choice(numbers)
        raw[begin:end] = rng.choice(
            [b"01", b"-0", b"1.0", b"1e3", b"9007199254740992", b"true", b"null", b'"1"', b"7"]
        )
    return bytes(raw).replace(b"\n", b" ")


@pytest.mark.parametrize("seed", range(40))
def test_a_mutated_line_gets_the_same_verdict_by_both_paths(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        at = rng.randrange(1, len(LINES))
        some = LINES[max(at - rng.randrange(4), 0) : at + rng.randrange(1, 4)]
        # The first line of a range takes the full check.
        some = [LINES[some_at - 1], *some] if (some_at := LINES.index(some[0])) else some
        place = rng.randrange(1, len(some))
        some[place] = mutated(some[place], rng)
        assert range_of(some) == slowly(some, monkeypatch), some


HOSTILE: dict[str, Any] = {
    "bytes that are no UTF-8": (b'"reads"', b'"re\xed\xa0\x80s"'),
    "a date that does not exist": (b'"ts":"2026-01-01', b'"ts":"2026-02-31'),
    "a key twice in the facts": (b'"revision":7', b'"revision":7,"revision":7'),
    "facts out of order": (
        b'"require_agent_id":false,"revision":7', b'"revision":7,"require_agent_id":false'
    ),
    "a float in the facts": (b'"revision":7', b'"revision":7.0'),
    "a key outside the profile": (b'"revision":7', b'"revisioN":7'),
    "facts too deep": (b'"revision":7', b'"revision":' + b"[" * 70 + b"]" * 70),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = HOSTILE[name]
    at = next(at for at, line in enumerate(LINES) if at and line in DECISIONS and old in line)
    some = [LINES[at - 1], LINES[at].replace(old, new, 1)]
    found = range_of(some)
    assert found.finding is not None
    assert found == slowly(some, monkeypatch)


def test_an_entry_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    at = next(at for at, line in enumerate(LINES) if at and line in DECISIONS)
    line = LINES[at].replace(b'"context_hash":"', b'"context_hash":"' + b"x" * 65536)
    assert rows(line) is not None
    found = range_of([LINES[at - 1], line])
    assert found.finding is not None
    assert found == slowly([LINES[at - 1], line], monkeypatch)
