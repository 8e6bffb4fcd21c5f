"""The result of masking. Knows nothing of how personal data is recognized."""

from typing import NamedTuple


class Masked(NamedTuple):
    """The masked text, and the sorted labels of what was masked."""

    text: str
    labels: tuple[str, ...]


UNREAD = Masked("[UNREAD]", ("UNREAD",))
"""A text that is masked whole, because it is too long or was not read in time."""
