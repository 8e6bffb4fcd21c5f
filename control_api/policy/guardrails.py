"""Defines the fields of a guardrail in requests and responses (`TOOLS.md`, Guardrails), and queries
the guardrails of a tenant.

Their values follow the same rules as those of a file (`policies/definitions/guardrail.py`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import orjson
from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from sqlalchemy import RowMapping, Select, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, RequestModel
from control_api.policy.models import (
    GUARDED_AGENTS,
    GUARDED_SOURCES,
    GUARDED_TASKS,
    DescribedRequests,
)
from control_api.store.schema.features import guardrails
from control_api.store.schema.statements import Position, columns_of, newest_first, of_tenant
from policies.definitions.forms import exact_name
from policies.definitions.guardrail import KINDS, MAX_ENTRIES, Guardrail
from policies.definitions.model import Sensitivity
from policies.definitions.wildcard import is_pattern
from policies.ground.canonical import encode

_NOW = "2026-01-31T12:00:00.000000Z"

GUARDRAIL_NAME = says("The guardrail's name, unique in the tenant.")


@dataclass(frozen=True, slots=True)
class GuardrailResponse:
    """A rule that must hold whatever a policy says. One of `never` and `always` is null. `file` is
    the file that defines it, if its source is one."""

    name: Annotated[str, GUARDRAIL_NAME]
    never: DescribedRequests | None
    always: DescribedRequests | None
    source: Annotated[Literal["file", "api"], says("Whether a `file` or the `api` defines it.")]
    file: str | None
    created_at: str
    updated_at: str

    example: ClassVar[dict[str, Any]] = {
        "name": "payroll-is-hr-only",
        "never": {
            "roles": None,
            "except_roles": ["hr_analyst"],
            "agents": None,
            "sources": ["payroll*", "salaries"],
            "levels": None,
            "tasks": None,
        },
        "always": None,
        "source": "api",
        "file": None,
        "created_at": _NOW,
        "updated_at": _NOW,
    }


def _exact(text: str) -> str:
    if is_pattern(text):
        raise ValueError("must not contain `*` or `?`")
    return text


_SOME = Field(min_length=1, max_length=MAX_ENTRIES)
Entries = Annotated[list[Identifier], _SOME]
_ExactName = Annotated[Identifier, AfterValidator(_exact), WithJsonSchema(exact_name("").schema())]
ExactNames = Annotated[list[_ExactName], _SOME]
Levels = Annotated[list[Sensitivity], _SOME]


class _Described(RequestModel):
    """Requests, by what they have in common. An absent member means all."""

    except_roles: Entries | None = None
    agents: Annotated[Entries | None, GUARDED_AGENTS] = None
    sources: Annotated[Entries | None, GUARDED_SOURCES] = None
    levels: Levels | None = None
    tasks: Annotated[ExactNames | None, GUARDED_TASKS] = None


class NeverAllowed(_Described):
    """Requests that must all be denied. `roles`, `agents` and `sources` take wildcards."""

    roles: Entries | None = None


class AlwaysAllowed(_Described):
    """Requests that must all be allowed. `agents` and `sources` take wildcards."""

    roles: ExactNames


class GuardrailBody(RequestModel):
    """A rule that must hold: either `never` or `always`."""

    example: ClassVar[dict[str, Any]] = {
        "never": {"sources": ["payroll*", "salaries"], "except_roles": ["hr_analyst"]}
    }
    shown: ClassVar[type | None] = GuardrailResponse

    name: Annotated[Identifier, GUARDRAIL_NAME]
    never: NeverAllowed | None = None
    always: AlwaysAllowed | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.never is None) == (self.always is None):
            raise ValueError("needs either `never` or `always`")
        return self

    def guardrail(self) -> Guardrail:
        kind = next(each for each in KINDS if getattr(self, each) is not None)
        members = getattr(self, kind).model_dump(exclude_none=True)
        return Guardrail.of(self.name, kind, members)


class NewGuardrail(GuardrailBody):
    """A guardrail with its name, which must be unique."""

    shown = None

    example: ClassVar[dict[str, Any]] = {"name": "payroll-is-hr-only", **GuardrailBody.example}


class GuardrailRequest(RequestModel):
    """A request about one guardrail, which the path names."""

    name: Annotated[Identifier, GUARDRAIL_NAME]


@dataclass(frozen=True, slots=True)
class StoredGuardrail:
    """A guardrail's row. `file` is the path of the file that defines it, relative to the policy
    directory, or None if it was created by the API. Times are in microseconds."""

    guardrail: Guardrail
    file: str | None
    created_at: int
    updated_at: int

    @classmethod
    def from_row(cls, row: RowMapping) -> "StoredGuardrail":
        guardrail = Guardrail.from_wire(orjson.loads(row["body"]))
        return cls(guardrail, row["file"], row["created_at"], row["updated_at"])


_COLUMNS = columns_of(guardrails)


async def _rows(connection: AsyncConnection, query: Select[Any]) -> list[StoredGuardrail]:
    return [StoredGuardrail.from_row(row) for row in (await connection.execute(query)).mappings()]


async def get_guardrail_row(
    connection: AsyncConnection, tenant_id: str, name: str
) -> StoredGuardrail | None:
    query = select(*_COLUMNS).where(of_tenant(guardrails, tenant_id), guardrails.c.name == name)
    return next(iter(await _rows(connection, query)), None)


async def page_of_guardrails(
    connection: AsyncConnection, tenant_id: str, after: Position | None, limit: int
) -> list[StoredGuardrail]:
    """Return a page of the tenant's guardrails, newest first, that begins after the position
    `(created_at, name)`."""
    query = select(*_COLUMNS).where(of_tenant(guardrails, tenant_id))
    query = newest_first(query, guardrails.c.created_at, guardrails.c.name, after, limit)
    return await _rows(connection, query)


async def every_guardrail(connection: AsyncConnection, tenant_id: str) -> list[StoredGuardrail]:
    """Return all guardrails of the tenant, in order of name."""
    query = select(*_COLUMNS).where(of_tenant(guardrails, tenant_id))
    return await _rows(connection, query.order_by(guardrails.c.name))


async def count_guardrails(connection: AsyncConnection, tenant_id: str) -> int:
    query = select(func.count()).where(of_tenant(guardrails, tenant_id))
    return (await connection.execute(query)).scalar_one()


async def add_guardrail(connection: AsyncConnection, tenant_id: str, row: StoredGuardrail) -> None:
    values = {"name": row.guardrail.name, "created_at": row.created_at, **_changing(row)}
    await connection.execute(insert(guardrails).values(tenant_id=tenant_id, **values))


async def put_guardrail(connection: AsyncConnection, tenant_id: str, row: StoredGuardrail) -> None:
    """Update the row of the guardrail with the same name."""
    await connection.execute(
        update(guardrails)
        .where(of_tenant(guardrails, tenant_id), guardrails.c.name == row.guardrail.name)
        .values(**_changing(row))
    )


async def remove_guardrail(connection: AsyncConnection, tenant_id: str, name: str) -> None:
    await connection.execute(
        delete(guardrails).where(of_tenant(guardrails, tenant_id), guardrails.c.name == name)
    )


def _changing(row: StoredGuardrail) -> dict[str, object]:
    body = encode(row.guardrail.to_wire())
    return {"body": body, "file": row.file, "updated_at": row.updated_at}
