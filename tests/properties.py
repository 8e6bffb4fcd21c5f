"""How many examples a property is tried with: few in a usual run, 50,000 under
`--hypothesis-profile=bypass`, which looks for a spelling that is judged as one thing and forwarded
as another."""

from hypothesis import HealthCheck, settings

BYPASS = "bypass"


def register() -> None:
    """To be called before pytest loads the profile it is told to."""
    settings.register_profile(
        BYPASS, max_examples=50_000, deadline=None, suppress_health_check=list(HealthCheck)
    )


def examples(usual: int) -> settings:
    """The settings of such a property; called while tests are collected."""
    if settings.get_current_profile_name() == BYPASS:
        return settings.get_profile(BYPASS)
    return settings(max_examples=usual, deadline=None)
