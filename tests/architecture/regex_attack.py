"""Attacks a regular expression: repeats what each of its repetitions matches, breaks the end off,
and measures whether matching takes longer than linear time.

Measures only this process's CPU time, and judges only by a long run; a shorter run decides whether
that is worth while. A pattern that backtracks would need minutes for the long run, so it is
stopped.
"""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator
from importlib import import_module
from time import process_time
from types import FrameType
from typing import Any

# The standard library's own parser of patterns: by name, since type checkers don't agree on it.
_parser: Any = import_module("re._parser")
c: Any = import_module("re._constants")

SHORT, LONG = 4_000, 64_000
# A linear match of the short text takes well below a millisecond, a quadratic one 15 or more, and
# one that is worse never ends.
SUSPICIOUS_SECONDS, CERTAIN_SECONDS = 0.005, 0.5
# A linear match of the long one takes some 20 milliseconds, a quadratic one 4 seconds or more.
MOST_SECONDS = 1.0

_ALPHABET = "aAzfxX019_ .,:;/-@*='\"`&<>()[]{}|\\\n\r\t\x00é"
_ENDS = ("", "\x00", "é ")
_REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)
_SAMPLES = 5
_MANY = 8


class Stopped(Exception):
    """the match took too long"""


def worst(pattern: str | bytes, flags: int, uses: frozenset[str]) -> str | None:
    """A shortened text that takes more than linear time; None if none was found."""
    compiled = re.compile(pattern, flags)
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    for prefix, pump, end in attacks(text, flags):
        for method in uses or ("match", "fullmatch", "finditer"):
            if _takes_long(compiled, method, prefix, pump, end):
                return f"{method}: {prefix!r} + n * {pump!r} + {end!r}"
    return None


def _takes_long(compiled: re.Pattern[Any], method: str, prefix: str, pump: str, end: str) -> bool:
    def seconds(size: int, most: float) -> float:
        text = prefix + pump * (size // len(pump)) + end
        subject = text.encode("latin-1", "replace") if _of_bytes(compiled) else text
        return _timed(lambda: _run(compiled, method, subject), most)

    short = seconds(SHORT, CERTAIN_SECONDS)
    if short < SUSPICIOUS_SECONDS:
        return False
    return short >= CERTAIN_SECONDS or seconds(LONG, MOST_SECONDS) >= MOST_SECONDS


def _of_bytes(compiled: re.Pattern[Any]) -> bool:
    return isinstance(compiled.pattern, bytes)


def _run(compiled: re.Pattern[Any], method: str, text: str | bytes) -> None:
    if method in ("match", "fullmatch", "search"):
        getattr(compiled, method)(text)
    else:
        for _ in compiled.finditer(text):
            pass


def _timed(work: Callable[[], None], most: float) -> float:
    """CPU seconds of `work`, which is stopped after `most`."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGVTALRM, stop)
    started = process_time()
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, most)
        work()
    except Stopped:
        return most
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return process_time() - started


def attacks(pattern: str, flags: int) -> Iterator[tuple[str, str, str]]:
    """For each repetition: the prefix, what is repeated, and the end."""
    rng = random.Random(pattern)
    tree = _parser.parse(pattern, flags)
    alphabet = [*_ALPHABET, *{each for each in pattern if each.isprintable()}]
    seen = set()
    for before, body in _repetitions(list(tree), []):
        for _ in range(_SAMPLES):
            made = _Sampler(rng, alphabet, flags)
            prefix, pump = made.sample(before), made.sample(body)
            if pump and (prefix, pump) not in seen:
                seen.add((prefix, pump))
                for end in _ENDS:
                    yield prefix, pump, end
                    if prefix:
                        # Where a search may begin anew with each repetition.
                        yield "", prefix + pump, end


def _repetitions(items: list[Any], before: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Each part that can repeat, and what precedes it."""
    for at, (kind, value) in enumerate(items):
        led = [*before, *items[:at]]
        if kind in _REPEATS:
            _, most, body = value
            if most > _MANY:
                yield led, list(body)
            yield from _repetitions(list(body), led)
        elif kind is c.SUBPATTERN:
            yield from _repetitions(list(value[3]), led)
        elif kind is c.ATOMIC_GROUP:
            yield from _repetitions(list(value), led)
        elif kind is c.BRANCH:
            for branch in value[1]:
                yield from _repetitions(list(branch), led)
        elif kind in (c.ASSERT, c.ASSERT_NOT):
            yield from _repetitions(list(value[1]), led)
    # Two repetitions side by side may share what they take, and so may a whole sequence.
    if len(items) > 1 and any(kind in _REPEATS for kind, _ in items):
        yield before, items


class _Sampler:
    """Texts that a pattern matches, or nearly; lookarounds are left out."""

    def __init__(self, rng: random.Random, alphabet: list[str], flags: int) -> None:
        self._rng = rng
        self._alphabet = alphabet
        self._flags = flags

    def sample(self, items: list[Any]) -> str:
        return "".join(self._one(kind, value) for kind, value in items)

    def _one(self, kind: Any, value: Any) -> str:
        if kind is c.LITERAL:
            return chr(value)
        if kind in (c.NOT_LITERAL, c.ANY, c.IN, c.CATEGORY):
            return self._character(kind, value)
        if kind in _REPEATS:
            least, most, body = value
            times = min(most, least + self._rng.randint(0, 2))
            return "".join(self.sample(list(body)) for _ in range(times))
        if kind is c.SUBPATTERN:
            return self.sample(list(value[3]))
        if kind is c.ATOMIC_GROUP:
            return self.sample(list(value))
        if kind is c.BRANCH:
            return self.sample(list(self._rng.choice(value[1])))
        assert kind in (c.AT, c.ASSERT, c.ASSERT_NOT, c.GROUPREF), kind
        return ""

    def _character(self, kind: Any, value: Any) -> str:
        """A character that the class matches, from those that occur in the pattern."""
        fitting = [each for each in self._alphabet if _takes(kind, value, each)]
        if not fitting and kind is c.IN:
            first, argument = next(each for each in value if each[0] is not c.NEGATE)
            fitting = [chr(argument[0] if first is c.RANGE else argument)]
        return self._rng.choice(fitting)


def _takes(kind: Any, value: Any, character: str) -> bool:
    if kind is c.ANY:
        return True
    if kind is c.NOT_LITERAL:
        return bool(ord(character) != value)
    if kind is c.CATEGORY:
        return _in_category(value, character)
    negated = value[0][0] is c.NEGATE
    taken = False
    for inner, argument in value:
        if inner is c.LITERAL:
            taken = taken or ord(character) == argument
        elif inner is c.RANGE:
            taken = taken or argument[0] <= ord(character) <= argument[1]
        elif inner is c.CATEGORY:
            taken = taken or _in_category(argument, character)
    return taken is not bool(negated)


def _in_category(category: Any, character: str) -> bool:
    word = character.isalnum() or character == "_"
    members: dict[Any, bool] = {
        c.CATEGORY_DIGIT: character.isdigit(),
        c.CATEGORY_NOT_DIGIT: not character.isdigit(),
        c.CATEGORY_SPACE: character.isspace(),
        c.CATEGORY_NOT_SPACE: not character.isspace(),
        c.CATEGORY_WORD: word,
        c.CATEGORY_NOT_WORD: not word,
    }
    return bool(members[category])
