"""Times of rows as answers show them."""

from policies.ground.canonical import rfc3339


def time_or_none(micros: int | None) -> str | None:
    return None if micros is None else rfc3339(micros)
