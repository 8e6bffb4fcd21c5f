"""The fields of an API key in a request (`service.md` 4.5). Knows nothing of the store."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from control_api.requests.base import Identifier, RequestModel
from control_api.requests.idempotency import HEADER, IdempotencyKey
from policies.definitions.model import Scope

DEFAULT_DAYS = 365


class KeyRequest(RequestModel):
    """Names one key."""

    key_id: Identifier


class NewKey(RequestModel):
    """The key to create (`service.md` 4.5)."""

    example: ClassVar[dict[str, Any]] = {"name": "underwriting agents", "scope": "evaluate"}

    in_header: ClassVar[Mapping[str, str]] = {"idempotency_key": HEADER}

    name: Identifier
    scope: Scope
    expires_days: int | None = Field(DEFAULT_DAYS, ge=1, le=3650)
    idempotency_key: IdempotencyKey | None = None

    @property
    def days(self) -> int | None:
        """The key's lifetime in days; None if it never expires."""
        # A sidecar's key expires only if the request says so. Otherwise a fleet would fall silent a
        # year after it was set up.
        defaulted = "expires_days" not in self.model_fields_set
        return None if defaulted and self.scope == "sidecar" else self.expires_days
