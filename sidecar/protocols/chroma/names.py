"""What Chroma's requests call collections, in paths and bodies. Pure."""

import re
from uuid import UUID

from policies.ground.errors import Malformed
from sidecar.http.request_target import encode_segment

# The forms of an id that Chroma takes; `uuid.UUID` alone would take more.
_ID = re.compile(
    r"(?:urn:uuid:|\{)?[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?"
).fullmatch


def identity_of(text: str) -> UUID | None:
    """The id that a segment of a path is, None where it is none."""
    return UUID(text) if _ID(text) else None


def name_of(value: object, field: str) -> str:
    """A member of a body that must be a name; `Malformed` where it isn't one."""
    if not isinstance(value, str) or not value:
        raise Malformed(f"`{field}` is not a name")
    return value


def collections_path(tenant: str, database: str) -> str:
    """Where the collections of a database are."""
    return (
        f"/api/v2/tenants/{encode_segment(tenant)}/databases/{encode_segment(database)}/collections"
    )
