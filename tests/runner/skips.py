"""Tells skips that a machine's limits explain from those that hide a missing program.

`expected_skips.toml` lists the expected ones, each with what the machine would need. Any other skip
means that something the tests bring along is not there, so it fails a run that has to be complete.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

LIST = Path(__file__).parents[1] / "expected_skips.toml"


@dataclass(frozen=True, slots=True)
class Expected:
    """An entry of the list. `*` in `tests` and `reason` stands for any text."""

    tests: str
    reason: str
    why: str
    needs: str
    user: str = "any"
    """`root` or `ordinary`, if the skip is expected for such a user alone."""

    def covers(self, test: str, reason: str, user: str) -> bool:
        """Whether this entry expects the skip of a test, given by its id, for this user."""
        return (
            self.user in ("any", user)
            and fnmatchcase(test, _literal(self.tests))
            and fnmatchcase(reason, _literal(self.reason))
        )


def unexpected(skips: Iterable[tuple[str, str]]) -> list[str]:
    """A line for each skip, a test's id and the reason, that the list doesn't expect."""
    user = "root" if os.geteuid() == 0 else "ordinary"
    return [
        f"{test}: {reason}"
        for test, reason in skips
        if not any(each.covers(test, _bare(reason), user) for each in expected())
    ]


@cache
def expected() -> tuple[Expected, ...]:
    """The list."""
    return tuple(Expected(**each) for each in tomllib.loads(LIST.read_text("utf-8"))["skip"])


def _bare(reason: str) -> str:
    return reason.removeprefix("Skipped: ")


def _literal(pattern: str) -> str:
    """A test's id holds brackets, which would be a set of characters."""
    return pattern.replace("[", "[[]")
