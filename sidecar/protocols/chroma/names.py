"""How Chroma's requests name collections, in paths and bodies. Pure."""

import re
from uuid import UUID

from policies.ground.errors import Malformed
from sidecar.http.request_target import encode_segment

# The spellings of an id that Chroma accepts. `uuid.UUID` alone would accept more.
_ID = re.compile(
    r"(?:urn:uuid:|\{)?[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?"
).fullmatch


def parse_id(text: str) -> UUID | None:
    """The id in a path segment; None if the segment is not an id."""
    return UUID(text) if _ID(text) else None


def expect_name(value: object, field: str) -> str:
    """The name in the body's member `field`. Raises `Malformed` if it isn't a name."""
    if not isinstance(value, str) or not value:
        raise Malformed(f"`{field}` must be a string that is not empty")
    return value


def collections_path(tenant: str, database: str) -> str:
    """The path of a database's collections."""
    return (
        f"/api/v2/tenants/{encode_segment(tenant)}/databases/{encode_segment(database)}/collections"
    )
