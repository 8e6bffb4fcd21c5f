"""Recognizes email addresses.

It starts from each `@`: if a domain follows, the characters before it are the local part.
"""

import re
from collections.abc import Iterator

from policies.ground.masking.recognizer import Found, Recognizer

_domain = re.compile(
    r"@(?:(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_][\w-]{1,62}|\[[0-9A-Fa-f.:]{3,45}\])"
).finditer
_LOCAL = frozenset("!#$%&'*+-^_`~.")
_LONGEST = 256


def _spans(text: str) -> Iterator[Found]:
    for match in _domain(text):
        # Search backwards by hand: a pattern that begins with the local part would be tried at
        # every letter of a text, and take quadratic time on one long word.
        start = at = match.start()
        while start and at - start < _LONGEST:
            char = text[start - 1]
            if not (char.isalnum() or char in _LOCAL):
                break
            start -= 1
        # Quotes and dots before an address belong to the sentence around it.
        while start < at and text[start] in "'`.":
            start += 1
        if start < at:
            yield start, match.end()


EMAIL = Recognizer("EMAIL", lambda text: "@" in text, _spans)
