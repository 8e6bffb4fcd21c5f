"""A query string read so that the data source reads it alike, or not at all. Pure."""

import re
from urllib.parse import unquote_to_bytes

from policies.ground.errors import Malformed

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]").search

# A presigned request: whoever made it holds credentials (Signature Version 4, and 2).
_CREDENTIALS = frozenset(("signature", "awsaccesskeyid", "expires"))


def parse_query(query: str | None) -> dict[str, str]:
    """Names and values, decoded once; a name without `=` has the value "". `Malformed` where two
    readers could differ, and for a request that was signed beforehand."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = (_decoded(part) for part in pair.partition("="))
        if not name:
            raise Malformed("the query holds a parameter without a name")
        if name in found:
            raise Malformed(f"the query states `{name[:64]}` twice")
        if name.lower().startswith("x-amz-") or name.lower() in _CREDENTIALS:
            raise Malformed("the query carries AWS credentials: here the sidecar signs")
        found[name] = value
    return found


def _decoded(part: str) -> str:
    # To some readers a bare `+` is a space, and a bare `;` begins another parameter.
    if "+" in part or ";" in part or _BAD_ESCAPE(part):
        raise Malformed("the query holds a bare `+` or `;`, or a `%` that escapes nothing")
    try:
        text = unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the query holds an escape that is not UTF-8") from None
    if _CONTROL(text):
        raise Malformed("the query holds an escaped control character")
    return text
