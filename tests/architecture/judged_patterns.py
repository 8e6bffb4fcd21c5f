"""Remembers which regular expressions withstood the attack, so that each is attacked once.

    python -m tests.architecture.judged_patterns        attacks the new ones, and records them
    python -m tests.architecture.judged_patterns --all  attacks all of them again

`judged_patterns.txt` has a line for each: Python's version, a digest, and the beginning of the
pattern, for readers. The digest is that of the pattern, its flags, the methods that are called on
it, and the source of the attack: a stronger attack judges every pattern again.

Engines of two Python versions may differ in where they backtrack, so a judgement holds for one
version. The command keeps the lines of the others. On a version without lines, such as those that
only run now and then, the tests attack every pattern.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.architecture import regex_attack
from tests.architecture.regex_sites import Used, exposed

COMMAND = "python -m tests.architecture.judged_patterns"
FILE = Path(__file__).with_suffix(".txt")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_SHOWN = 60


def line(used: Used) -> str:
    """The line that records the pattern."""
    pattern, flags = used.compiled.pattern, used.compiled.flags
    how = [ascii(pattern), flags, sorted(used.uses), _source_of_the_attack()]
    digest = hashlib.sha256(json.dumps(how).encode()).hexdigest()[:32]
    return f"{VERSION} {digest} {pattern!a:.{_SHOWN}}"


def read() -> set[str]:
    """The lines of this Python."""
    return {each for each in _lines() if _is_ours(each)}


def attack(patterns: Iterable[Used]) -> list[str]:
    """Attacks each pattern. Returns what takes more than linear time, and by which text."""
    found = []
    for (path, number, pattern, flags), uses in patterns:
        text = regex_attack.worst(pattern, flags, uses)
        if text is not None:
            found.append(f"{path}:{number} {pattern!r}\n    {text}")
    return found


@cache
def _source_of_the_attack() -> str:
    return Path(regex_attack.__file__).read_text("utf-8")


def _lines() -> list[str]:
    return FILE.read_text("utf-8").splitlines() if FILE.exists() else []


def _is_ours(recorded: str) -> bool:
    return recorded.partition(" ")[0] == VERSION


def main() -> int:
    """Returns 1, and records nothing, if a pattern takes more than linear time."""
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("--all", action="store_true", help="attack the recorded ones again, too")
    known = set[str]() if parser.parse_args().all else read()
    patterns = {line(used): used for used in exposed()}
    new = [used for recorded, used in patterns.items() if recorded not in known]
    if found := attack(new):
        print("\n".join(found))
        return 1
    others = [each for each in _lines() if not _is_ours(each)]
    FILE.write_text("".join(f"{each}\n" for each in sorted([*others, *patterns])), "utf-8")
    print(f"{len(new)} of {len(patterns)} patterns attacked, all recorded in {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
