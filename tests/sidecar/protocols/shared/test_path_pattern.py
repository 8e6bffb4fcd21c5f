"""Path patterns match what they say, in linear time even for a hostile path."""

import re
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecar.protocols.shared.source_names import PathPattern

_SEGMENTS = st.lists(
    st.sampled_from(("**", "a", "b", "{x}", "{y}a", "a{x}", "{x}a{y}", "{x}{y}", "aa", "")),
    min_size=1,
    max_size=6,
)
_PATHS = st.lists(st.text("ab", max_size=4), min_size=1, max_size=8)
_NAME = re.compile(r"\{[a-z]+\}")


def _meaning(pattern: str) -> "re.Pattern[str]":
    """The pattern as a regular expression: plainly right, but possibly very slow."""
    parts = []
    for segment in pattern[1:].split("/"):
        if segment == "**":
            parts.append("(?:/[^/]*)*")
        else:
            parts.append("/" + "([^/]+)".join(map(re.escape, _NAME.split(segment))))
    return re.compile("".join(parts))


@example(["**", "{x}", "**"], ["a", "b", "a"])
@example(["**", "{x}a{y}", "b", "**", "{x}", "**"], ["aaa", "b", "aaaa", "b", "b", "a"])
@given(_SEGMENTS, _PATHS)
def test_a_pattern_matches_like_its_regular_expression(pattern: list[str], path: list[str]) -> None:
    written, asked = "/" + "/".join(pattern), "/" + "/".join(path)
    expected = _meaning(written).fullmatch(asked)
    found = PathPattern(written).match(asked)
    assert found == (None if expected is None else expected.groups())


HOSTILE = {
    "two runs": ("/**/a/**/b", "/a"),
    "many runs": ("/**/a" * 8 + "/b", "/a"),
    "names": ("/**/{x}/**/{y}/**/{z}/b", "/a"),
    "names in a segment": ("/" + "{x}a" * 8 + "b", "a"),
    "nearly there": ("/**/a/a/b/**/a/a/c", "/a/a/b"),
}


def _steps(pattern: str, path: str) -> int:
    """How many calls and lines a match takes. The C code within one is at most linear."""
    compiled = PathPattern(pattern)
    steps = 0

    def step(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        assert compiled.match(path) is None
    finally:
        sys.settrace(before)
    return steps


@pytest.mark.parametrize(("pattern", "piece"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_path_takes_linear_time(pattern: str, piece: str) -> None:
    short, long = (_steps(pattern, "/" + (piece * count).lstrip("/")) for count in (300, 1200))
    assert long < 4.2 * short
    assert long < 200 * 1200
