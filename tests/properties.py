"""How many examples, state machine steps and process kills a test run tries.

A usual run tries a fifth of the number that each test gives; every run draws other examples. `make
test MANY=1` (`--hypothesis-profile=many`) tries all of them. `--hypothesis-profile=bypass` tries
50,000 examples of each property, to find a spelling that is judged as one thing and forwarded as
another. No profile has a deadline, since the machine may be busy.
"""

from hypothesis import HealthCheck, settings

USUAL, MANY, BYPASS = "usual", "many", "bypass"
FIFTH = 5
FEWEST = 20
UNNAMED = 300
"""Examples in the profile `many` for a property that gives no number."""


def register() -> None:
    """Register the profiles; call this before pytest loads one."""
    unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))
    settings.register_profile(USUAL, unhurried, max_examples=UNNAMED // FIFTH)
    settings.register_profile(MANY, unhurried, max_examples=UNNAMED)
    settings.register_profile(BYPASS, unhurried, max_examples=50_000)
    settings.load_profile(USUAL)


def examples(many: int) -> settings:
    """Settings for a property that tries `many` examples in a full run. Call while tests are
    collected."""
    if settings.get_current_profile_name() == BYPASS:
        return settings.get_profile(BYPASS)
    return settings(max_examples=few(many, at_least=FEWEST))


def few(many: int, *, at_least: int = 1) -> int:
    """`many` in a full run, otherwise a fifth of it. Call while tests are collected or run."""
    if settings.get_current_profile_name() == USUAL:
        return max(many // FIFTH, min(many, at_least))
    return many
