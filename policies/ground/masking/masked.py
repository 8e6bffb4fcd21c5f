"""What masking gives back. Knows nothing of how personal data is recognised."""

from typing import NamedTuple


class Masked(NamedTuple):
    """The text as it may be written, and the labels that now stand in it, sorted."""

    text: str
    labels: tuple[str, ...]
