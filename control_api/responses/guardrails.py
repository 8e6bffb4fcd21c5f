"""Responses about guardrails (`policy-tools.md` section 2)."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from policies.definitions.model import Sensitivity

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class DescribedRequests:
    """The requests that a guardrail is about. A member that is null means all."""

    roles: list[str] | None
    except_roles: list[str] | None
    agents: list[str] | None
    sources: list[str] | None
    levels: list[Sensitivity] | None
    tasks: list[str] | None


@dataclass(frozen=True, slots=True)
class GuardrailShown:
    """What must hold whatever a policy says. One of `never` and `always` is null. `file` is the
    file that defines it, if its source is one."""

    name: str
    never: DescribedRequests | None
    always: DescribedRequests | None
    source: Literal["file", "api"]
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
