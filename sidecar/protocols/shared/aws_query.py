"""Reads a query string as AWS reads it, or not at all. Pure."""

from policies.ground.errors import Malformed
from sidecar.protocols.shared.escapes import CONTROL, decode_escapes

# Parameters of a request presigned with Signature Version 2. Version 4's begin with `x-amz-`.
_CREDENTIALS = frozenset(("signature", "awsaccesskeyid", "expires"))


def parse_query(query: str | None) -> dict[str, str]:
    """Names and values, decoded once; a name without `=` has the value "". Raises `Malformed` for
    a query that two readers could understand differently, and for a presigned request."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = (_decode(part) for part in pair.partition("="))
        if not name:
            raise Malformed("the query has a parameter without a name")
        if name in found:
            raise Malformed(f"the query has `{name[:64]}` twice")
        # With someone else's signature in the query, the data source would authenticate that signer
        # instead of the sidecar.
        if name.lower().startswith("x-amz-") or name.lower() in _CREDENTIALS:
            raise Malformed(
                f"the query carries AWS credentials in `{name[:64]}`: send the request unsigned, "
                "the sidecar signs it"
            )
        found[name] = value
    return found


def _decode(part: str) -> str:
    # Some readers take a bare `+` for a space, and a bare `;` for the end of a parameter.
    if "+" in part or ";" in part:
        raise Malformed("the query has a bare `+` or `;`")
    text = decode_escapes(part)
    if CONTROL(text):
        raise Malformed("the query has an escaped control character")
    return text
