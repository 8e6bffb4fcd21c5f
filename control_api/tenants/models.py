"""Defines how a request names a tenant, and the responses about tenants (`CONTRACT.md`,
Tenants)."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from control_api.edge.answers import time_or_none
from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, RequestModel
from control_api.store.queries.tenant_rows import StoredTenant
from policies.ground.canonical import rfc3339

_NOW = "2026-01-31T12:00:00.000000Z"

TENANT_NAME = says("The tenant's name, unique in this installation.")


@dataclass(frozen=True, slots=True)
class TenantResponse:
    """A tenant (`CONTRACT.md`, Tenants)."""

    tenant_id: str
    name: Annotated[str, TENANT_NAME]
    created_at: str
    require_agent_id: bool
    pii_masking: bool
    active: bool
    frozen_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "name": "acme",
        "created_at": _NOW,
        "require_agent_id": False,
        "pii_masking": False,
        "active": True,
        "frozen_at": None,
    }


@dataclass(frozen=True, slots=True)
class CreatedTenant:
    """A new tenant with its first admin key, shown only once (`CONTRACT.md`, Tenants)."""

    tenant_id: str
    admin_key: Annotated[str, says("The tenant's first admin key. Shown only in this response.")]

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "admin_key": "slc_" + "0" * 49,
    }


@dataclass(frozen=True, slots=True)
class TenantSettingsResponse:
    """A tenant's own settings; a global setting of the service may switch more on."""

    tenant_id: str
    require_agent_id: bool
    pii_masking: bool

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "ten_2mT5kWc8LpR0aZ3nB7xGvQ",
        "require_agent_id": True,
        "pii_masking": False,
    }


@dataclass(frozen=True, slots=True)
class Freeze:
    """The freeze of a tenant, if it is frozen; `reason` and `frozen_at` are null if it is not."""

    frozen: Annotated[bool, says("Whether the tenant is frozen.")]
    reason: str | None
    frozen_at: str | None

    example: ClassVar[dict[str, Any]] = {
        "frozen": True,
        "reason": "a leaked key reads contracts",
        "frozen_at": _NOW,
    }


class TenantRequest(RequestModel):
    """A request about one tenant, which the path names by its id."""

    tenant_id: Identifier


def shown_tenant(tenant: StoredTenant) -> TenantResponse:
    fields: dict[str, Any] = {name: getattr(tenant, name) for name in TenantResponse.__slots__}
    fields["created_at"] = rfc3339(tenant.created_at)
    fields["frozen_at"] = time_or_none(tenant.frozen_at)
    return TenantResponse(**fields)
