"""The address by which browsers know the console."""

import re

# An origin (RFC 6454, section 6.2): browsers send it in lower case, without a path.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z")


def parse_origin(text: str) -> str:
    """The origin, as browsers send it. Raises `ValueError` if there is more to it."""
    origin = text.removesuffix("/").lower()
    if not _ORIGIN.match(origin):
        raise ValueError(f"`{text}` is not an address like https://sluice.example")
    return origin
