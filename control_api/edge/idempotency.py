"""The header `Idempotency-Key` of requests that create an object whose secret is shown once.

The object's id is derived from the header, so the database itself refuses a second object,
whichever process the repetition reaches, and however much later. Its answer can't repeat the
secret, so it is a conflict. Knows no object.
"""

import hashlib
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from policies.ground.errors import Conflict

HEADER = "Idempotency-Key"
_PREFIX = b"sluice/idempotency/v1\0"

IdempotencyKey = Annotated[
    str,
    Field(
        min_length=16,
        max_length=128,
        pattern="^[!-~]*$",
        description="Random text of your own. A second request with it creates nothing and is "
        "answered 409.",
        json_schema_extra={"examples": ["0b1b7c5e-5e9a-4f0e-9d58-3f1c2a7e6b11"]},
    ),
]


def id_entropy(key: str | None, tenant_id: str, entropy: Callable[[int], bytes]) -> bytes:
    """The 16 bytes of a new object's id: by the idempotency key if there is one, else random."""
    if key is None:
        return entropy(16)
    tenant = tenant_id.encode()
    named = _PREFIX + len(tenant).to_bytes(4, "big") + tenant + key.encode()
    return hashlib.sha256(named).digest()[:16]


class Repeated(Conflict):
    """this request was carried out before"""

    def __init__(self, what: str, created: str) -> None:
        super().__init__(f"this request was carried out before: it created the {what} `{created}`")
        self.created = created
