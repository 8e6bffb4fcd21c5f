"""Decodes the percent escapes of a query, or refuses them. Pure."""

import re
from urllib.parse import unquote_to_bytes

from policies.ground.errors import Malformed

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search


def decode_escapes(text: str) -> str:
    """`text`, decoded once. Raises `Malformed` for an escape that readers treat differently."""
    # A lenient reader keeps a lone `%` as it is, a strict one refuses the request.
    if _BAD_ESCAPE(text):
        raise Malformed("the query has a `%` without two hex digits")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        # Strict UTF-8 has no overlong forms, so no second way to write a `/` or a dot.
        raise Malformed("the query has an escape that is not UTF-8") from None
