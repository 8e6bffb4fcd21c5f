"""How much hypothesis tries: enough to meet the rare corners, and never judged by a busy machine's
clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "policies", deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("policies")
