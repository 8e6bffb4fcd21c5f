"""Sets the numbers of examples, state machine steps and process kills that a test run tries, and
their seed.

| Run | Examples | Seed |
|---|---|---|
| `make test` | a tenth of the number that each test gives | fixed: each run tries the same |
| with `--deep` | a fifth | drawn |
| `make deep MANY=1` (`--hypothesis-profile=many`) | all | drawn |
| `--hypothesis-profile=bypass` | 50,000 of each property | drawn |

So two runs of the gate on one commit have the same result. A drawn seed is printed;
`TEST_SEED` in the environment repeats it. The profile `bypass` looks for a spelling that is
judged as one thing and forwarded as another. No profile has a deadline, since the machine may be
busy.
"""

from __future__ import annotations

import os
from random import Random, SystemRandom  # noqa: TID251 -- the one place that draws a seed

import pytest
from hypothesis import HealthCheck, settings

USUAL, DEEP, MANY, BYPASS = "usual", "deep", "many", "bypass"
TRIED = {USUAL: 10, DEEP: 5}
"""The profiles that try one of so many examples."""
FEWEST = 20
UNNAMED = 300
"""The number of examples in the profile `many` for a property that gives no number."""
SEED = "TEST_SEED"
"""The variable with the run's drawn seed. Workers and processes of tests inherit it."""


def register() -> None:
    """Register the profiles; call this before pytest loads one."""
    # hypothesis itself would not draw where the variable CI is set.
    unhurried = settings(deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
    usual, deep = UNNAMED // TRIED[USUAL], UNNAMED // TRIED[DEEP]
    settings.register_profile(USUAL, unhurried, max_examples=usual, derandomize=True)
    settings.register_profile(DEEP, unhurried, max_examples=deep)
    settings.register_profile(MANY, unhurried, max_examples=UNNAMED)
    settings.register_profile(BYPASS, unhurried, max_examples=50_000)
    settings.load_profile(USUAL)


def configure(config: pytest.Config) -> None:
    """Choose profile and seed by the options. Call before hypothesis reads its own options."""
    options = config.option
    given = options.hypothesis_seed
    if options.hypothesis_profile is None:
        drawn = config.getoption("--deep", default=False) or given is not None or SEED in os.environ
        options.hypothesis_profile = DEEP if drawn else USUAL
    if options.hypothesis_profile != USUAL:
        options.hypothesis_seed = given or draw(given)


def draw(given: object = None) -> str:
    """Choose a seed for this process and those that it starts: the environment's seed, else the
    given one, else another each time."""
    return os.environ.setdefault(SEED, str(given or SystemRandom().getrandbits(32)))


def drawn() -> str | None:
    """Return the advice on how to repeat this run's draws, or None if each run draws the same."""
    return f"{SEED}={os.environ[SEED]}" if SEED in os.environ else None


def chance(name: str) -> Random:
    """Return a generator for the test `name`: fixed by the name; in a run with a drawn seed, by the
    name and the seed. A second generator of the same name draws the same."""
    return Random(f"{name} {os.environ.get(SEED, '')}")


def examples(many: int) -> settings:
    """Return settings for a property that tries `many` examples in a full run. Call while tests are
    collected."""
    if settings.get_current_profile_name() == BYPASS:
        return settings.get_profile(BYPASS)
    return settings(max_examples=few(many, at_least=FEWEST))


def few(many: int, *, at_least: int = 1) -> int:
    """Return `many` in a full run, otherwise a part of it. Call while tests are collected or
    run."""
    part = TRIED.get(settings.get_current_profile_name(), 1)
    return max(many // part, min(many, at_least))
