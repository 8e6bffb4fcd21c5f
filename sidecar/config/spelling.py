"""How a text in the settings file must be written. Knows no key."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from policies.definitions.definition import shown


class Spelling(NamedTuple):
    """How a text must begin, or with `\\Z` at its end must be; and what to say of another."""

    pattern: re.Pattern[str]
    wrong: str


def address_fault(text: str, schemes: tuple[str, ...]) -> str | None:
    """What is wrong with an address that must have one of `schemes`."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return f"is not an address: {error}"
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        return f"{shown(text)} is not " + " or ".join(f"{each}://host:port" for each in schemes)
    if parts.username is not None or parts.query or parts.fragment or not text.isascii():
        # The text is not shown: it may contain a password.
        return "must be only scheme, host, port and path; remove user, query and fragment"
    return None
