"""How much the suite tries of what it can never try completely: examples of a property, steps of a
state machine, kills of a process.

A usual run tries a fifth of what each test names; every run draws others, so what one misses a
later one may find. `make test MANY=1` (`--hypothesis-profile=many`) tries all of it, and
`--hypothesis-profile=bypass` 50,000 examples of each property, to look for a spelling that is
judged as one thing and forwarded as another. No profile lets a busy machine's clock decide.
"""

from hypothesis import HealthCheck, settings

USUAL, MANY, BYPASS = "usual", "many", "bypass"
FIFTH = 5
FEWEST = 20
UNNAMED = 300
"""Examples under `many` of a property that names no number."""


def register() -> None:
    """To be called before pytest loads the profile it is told to."""
    unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))
    settings.register_profile(USUAL, unhurried, max_examples=UNNAMED // FIFTH)
    settings.register_profile(MANY, unhurried, max_examples=UNNAMED)
    settings.register_profile(BYPASS, unhurried, max_examples=50_000)
    settings.load_profile(USUAL)


def examples(many: int) -> settings:
    """The settings of a property that is tried `many` times when there is time for it; called while
    tests are collected."""
    if settings.get_current_profile_name() == BYPASS:
        return settings.get_profile(BYPASS)
    return settings(max_examples=few(many, at_least=FEWEST))


def few(many: int, *, at_least: int = 1) -> int:
    """`many`, or in a usual run a fifth of it; called while tests are collected or run."""
    if settings.get_current_profile_name() == USUAL:
        return max(many // FIFTH, min(many, at_least))
    return many
