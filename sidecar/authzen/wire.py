"""The bodies and errors of `/access/v1/*` (AuthZEN Authorization API 1.0, section 10): where they
differ from the rest of the API, the standard's clients expect it so. Knows no route."""

from typing import Any

from policies.ground.errors import Malformed, SluiceError, Unauthorized
from policies.ground.keys import KeysDiffer
from sidecar.api.route import ErrorReply, describe_error
from sidecar.live_keys import InvalidKey
from sidecar.protocols.strict_body import short_object

MAX_DEPTH = 64
"""The most levels of a body (`INTEGRATIONS.md`, Rules for every door)."""

_NO_KEY = b'WWW-Authenticate: Bearer realm="sluice"\r\n'
_BAD_KEY = b'WWW-Authenticate: Bearer realm="sluice", error="invalid_token"\r\n'


def read_body(raw: bytes, content_type: str | None) -> dict[str, Any]:
    """The JSON object, which no two readers understand differently. Raises `Malformed`."""
    if content_type != "application/json":  # nearly every request: no parsing
        media = (content_type or "").partition(";")[0].strip()
        if media.lower() != "application/json":
            raise Malformed(f"the content type is `{media[:64]}`; send `application/json`")
    return short_object(raw, MAX_DEPTH)


def describe(error: SluiceError) -> ErrorReply:
    """The error as a client of the standard expects it: 401 for every key that is not valid, with
    the challenge of RFC 6750."""
    if isinstance(error, InvalidKey | KeysDiffer):
        return ErrorReply(401, Unauthorized(error.message).encoded(), _BAD_KEY)
    reply = describe_error(error)
    return reply._replace(extra_lines=_NO_KEY) if isinstance(error, Unauthorized) else reply
