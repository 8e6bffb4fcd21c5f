"""Defines the fields of a guardrail in requests and responses (`TOOLS.md`, Guardrails).

Their values follow the same rules as those of a file (`policies/definitions/guardrail.py`).
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from control_api.edge.requests import Identifier, RequestModel
from control_api.policy.models import DescribedRequests
from policies.definitions.forms import ExactName
from policies.definitions.guardrail import KINDS, MAX_ENTRIES, Guardrail
from policies.definitions.model import Sensitivity
from policies.definitions.wildcard import is_pattern

_NOW = "2026-01-31T12:00:00.000000Z"


@dataclass(frozen=True, slots=True)
class GuardrailResponse:
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


def _exact(text: str) -> str:
    if is_pattern(text):
        raise ValueError("must not contain `*` or `?`")
    return text


_SOME = Field(min_length=1, max_length=MAX_ENTRIES)
Entries = Annotated[list[Identifier], _SOME]
_ExactName = Annotated[Identifier, AfterValidator(_exact), WithJsonSchema(ExactName("").schema())]
ExactNames = Annotated[list[_ExactName], _SOME]
Levels = Annotated[list[Sensitivity], _SOME]


class _Described(RequestModel):
    """Requests, by what they have in common. An absent member means all."""

    except_roles: Entries | None = None
    agents: Entries | None = None
    sources: Entries | None = None
    levels: Levels | None = None
    tasks: ExactNames | None = None


class NeverAllowed(_Described):
    """Requests of which not one may be allowed. `roles`, `agents` and `sources` take wildcards."""

    roles: Entries | None = None


class AlwaysAllowed(_Described):
    """Requests of which every one must be allowed. `agents` and `sources` take wildcards."""

    roles: ExactNames


class GuardrailBody(RequestModel):
    """What must hold: either `never` or `always`."""

    example: ClassVar[dict[str, Any]] = {
        "never": {"sources": ["payroll*", "salaries"], "except_roles": ["hr_analyst"]}
    }
    shown: ClassVar[type | None] = GuardrailResponse

    name: Identifier
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
    """Names one guardrail."""

    name: Identifier
