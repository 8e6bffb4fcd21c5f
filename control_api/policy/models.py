"""Defines the fields of policies in requests, for one policy or a whole set, and in responses
(`CONTRACT.md`, Policies)."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from control_api.edge.field_descriptions import says
from control_api.edge.requests import Identifier, RequestModel, json_integer
from control_api.store.queries.policy_rows import PolicyChange, StoredPolicy
from policies.definitions.model import Sensitivity
from policies.ground.canonical import rfc3339
from policies.ground.errors import Invalid, invalid

_NOW = "2026-01-31T12:00:00.000000Z"

POLICY_NAME = says("The policy's name, unique among the tenant's active policies.")


@dataclass(frozen=True, slots=True)
class PolicyFields:
    """The fields of a policy that a request sets (`CONTRACT.md`, Policies)."""

    name: Annotated[str, POLICY_NAME]
    agent_role: str
    allowed_sources: list[str]
    denied_sources: list[str]
    max_sensitivity: Sensitivity
    allowed_tasks: list[str]
    denied_tasks: list[str]
    session_ttl_minutes: int | None
    permitted_agent_ids: list[str]
    industry: str | None
    process_group: str | None

    example: ClassVar[dict[str, Any]] = {
        "name": "loan-underwriting",
        "agent_role": "loan_underwriter",
        "allowed_sources": ["contracts", "rest://crm/customers/*"],
        "denied_sources": ["payroll"],
        "max_sensitivity": "high",
        "allowed_tasks": [],
        "denied_tasks": ["marketing"],
        "session_ttl_minutes": 480,
        "permitted_agent_ids": [],
        "industry": "banking",
        "process_group": "lending",
    }


VersionNumber = Annotated[int, says("The version's number, counted from 1.")]


@dataclass(frozen=True, slots=True)
class PolicyResponse:
    """A policy with its id, version and times (`CONTRACT.md`, Policies)."""

    policy_id: str
    version: VersionNumber
    name: Annotated[str, POLICY_NAME]
    agent_role: str
    allowed_sources: list[str]
    denied_sources: list[str]
    max_sensitivity: Sensitivity
    allowed_tasks: list[str]
    denied_tasks: list[str]
    session_ttl_minutes: int | None
    permitted_agent_ids: list[str]
    industry: str | None
    process_group: str | None
    user_modified: Annotated[
        bool, says("Whether a user has changed the policy since its file defined it.")
    ]
    file: str | None
    changed_by: str
    created_at: str
    updated_at: str

    example: ClassVar[dict[str, Any]] = {
        "policy_id": "pol_5dK1yHsV9nE3rJx6MqT2bU",
        "version": 1,
        **PolicyFields.example,
        "user_modified": False,
        "file": "default/banking/lending.yaml",
        "changed_by": "disk",
        "created_at": _NOW,
        "updated_at": _NOW,
    }
    with_headers: ClassVar[dict[str, str]] = {"ETag": "the version, for `If-Match`"}

    def headers(self) -> dict[str, str]:
        return {"ETag": f'"{self.version}"'}


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A version of a policy, and who made it how."""

    version: VersionNumber
    policy: Annotated[PolicyFields, says("The policy as this version defined it.")]
    changed_by: str
    changed_at: Annotated[str, says("When the change was made (RFC 3339, UTC).")]
    change: Annotated[PolicyChange, says("What kind of change made this version.")]

    example: ClassVar[dict[str, Any]] = {
        "version": 1,
        "policy": PolicyFields.example,
        "changed_by": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "changed_at": _NOW,
        "change": "created",
    }


@dataclass(frozen=True, slots=True)
class PolicyFiles:
    """The tenant's policy files. If `refused_at` is set, they were refused when they were last
    read, for `faults`, and the policies from before stay in force."""

    watched: Annotated[
        bool, says("Whether the service reads policies from files (`SLUICE_POLICY_DIR`).")
    ]
    refused_at: Annotated[
        str | None, says("Since when the files are refused; null if they are in force.")
    ]
    faults: Annotated[
        list[str],
        says("Why the files are refused, at most 20 faults, each with its file and line."),
    ]

    example: ClassVar[dict[str, Any]] = {
        "watched": True,
        "refused_at": _NOW,
        "faults": ["default/demo/support.yaml:3: agent_rol: is not a key of a policy"],
    }


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The changes that a reload of the policy files made, by policy name. `warnings` lists folders
    that belong to no tenant and have a name close to this tenant's."""

    status: Annotated[Literal["reloaded"], says("Always `reloaded`.")]
    added: Annotated[list[str], says("The names of policies that are new in the files.")]
    updated: Annotated[list[str], says("The names of policies whose files changed.")]
    unchanged: list[str]
    removed: Annotated[list[str], says("The names of policies that are no longer in the files.")]
    skipped: Annotated[
        list[str],
        says("The names of policies left unchanged because a user modified or deleted them."),
    ]
    warnings: Annotated[
        list[str],
        says("Policy folders that match no tenant but have a name close to this tenant's."),
    ]

    example: ClassVar[dict[str, Any]] = {
        "status": "reloaded",
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "unchanged": [],
        "removed": [],
        "skipped": [],
        "warnings": [],
    }


GUARDED_AGENTS = says("Agents, with the wildcards `*` and `?`; `absent` is the call without one.")
GUARDED_SOURCES = says("Sources, with the wildcards `*` and `?`.")
GUARDED_TASKS = says("Tasks, by their exact names; `absent` is the call without one.")


@dataclass(frozen=True, slots=True)
class DescribedRequests:
    """The requests that a guardrail is about. A member that is null means all."""

    roles: list[str] | None
    except_roles: list[str] | None
    agents: Annotated[list[str] | None, GUARDED_AGENTS]
    sources: Annotated[list[str] | None, GUARDED_SOURCES]
    levels: list[Sensitivity] | None
    tasks: Annotated[list[str] | None, GUARDED_TASKS]


Names = Annotated[list[Identifier], Field(max_length=1000)]
NullableNames = Annotated[
    Names, BeforeValidator(lambda v: [] if v is None else v, json_schema_input_type=Names | None)
]
"""A list of names that may be null or absent, which means the same as an empty list (`CONTRACT.md`,
Wildcards and empty lists)."""


class PolicyRequest(RequestModel):
    """A request about one policy, which the path names by its id."""

    policy_id: Identifier


class PolicyBody(RequestModel):
    """A complete policy. Fields left out are empty."""

    example: ClassVar[dict[str, Any]] = PolicyFields.example

    name: Annotated[Identifier, POLICY_NAME]
    agent_role: Identifier
    allowed_sources: Names
    denied_sources: NullableNames = Field(default_factory=list)
    max_sensitivity: Sensitivity
    allowed_tasks: NullableNames = Field(default_factory=list)
    denied_tasks: NullableNames = Field(default_factory=list)
    session_ttl_minutes: (
        Annotated[int, Field(ge=1, le=9_999_999), BeforeValidator(json_integer)] | None
    ) = None
    permitted_agent_ids: NullableNames = Field(default_factory=list)
    industry: Identifier | None = None
    process_group: Identifier | None = None

    def body(self) -> dict[str, Any]:
        """Return the policy's fields as they are stored."""
        # Leave out what subclasses add: `policy_id` and `if_match` belong to the request.
        return self.model_dump(include=set(PolicyBody.model_fields))


MAX_SET_BODY = 32 * 1024 * 1024
"""The most bytes in a request body that holds a whole set of policies (`TOOLS.md`, Candidates)."""


def _distinct(policies: list[PolicyBody]) -> list[PolicyBody]:
    names = Counter(policy.name for policy in policies)
    twice = [f"`{name}`" for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"several policies have the name {', '.join(twice[:10])}")
    return policies


PolicySet = Annotated[list[PolicyBody], AfterValidator(_distinct)]
"""All policies that a tenant would have in force together."""


MAX_FAULTS = 100
"""The most lines of details in the error about an invalid set of policies."""
MAX_TESTS = 256 * 1024
"""The most characters in a file of tests."""


class PolicySetBody(RequestModel):
    """All policies of a tenant, as they would be in force together. With `keep_others`, only those
    that change: the others are as they are in force."""

    example: ClassVar[dict[str, Any]] = {"policies": [PolicyBody.example]}
    decoded_later: ClassVar[bool] = True

    policies: Annotated[PolicySet, says("The tenant's policies, as they would be.")]
    keep_others: Annotated[
        bool,
        says(
            "Whether the policies in force that have other names belong to the set too. "
            "`policies` are then those that are changed or new."
        ),
    ] = False
    without: list[Identifier] = Field(
        default_factory=list,
        description="With `keep_others`: the names of policies in force that the set leaves out.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.without and not self.keep_others:
            raise ValueError("`without` needs `keep_others`: otherwise nothing else is in the set")
        both = {each.name for each in self.policies} & set(self.without)
        if both:
            raise ValueError(f"`{min(both)}` is in `policies` and in `without`")
        return self

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """Return the validated set. Raise `Invalid`, with details that say which policy each
        complaint is about."""
        try:
            return super().read(values)
        except Invalid as refusal:
            lines = (refusal.details or "").splitlines()
            more = [f"and {len(lines) - MAX_FAULTS} more"] if len(lines) > MAX_FAULTS else []
            raise invalid([*lines[:MAX_FAULTS], *more], "request") from None

    def bodies(self, in_force: bytes) -> list[dict[str, Any]]:
        """Return the bodies of all policies in the set as they are stored, including those in force
        that the set keeps (`keep_others`). `in_force` is the JSON array of the documents of all
        roles."""
        changed = [each.body() for each in self.policies]
        if not self.keep_others:
            return changed
        gone = {*self.without, *(each["name"] for each in changed)}
        stored = (each for document in orjson.loads(in_force) for each in bodies_of(document))
        return [*(each for each in stored if each["name"] not in gone), *changed]


def bodies_of(document: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the bodies of a role's policies, without the id and version that its document also
    holds."""
    for wire in document:
        yield {key: value for key, value in wire.items() if key not in UNSTORED}


UNSTORED = {"policy_id": "", "version": 0}
"""The id and version that a policy without a row in the store gets. No decision depends on them."""


class ComparedPolicies(PolicySetBody):
    """A set of policies, and the set that it is compared with."""

    against: Annotated[
        PolicySet | None, says("Policies to compare with, in place of all those in force.")
    ] = None


class TriedRetrieval(RequestModel):
    """The fields of an evaluation's body that a decision depends on."""

    agent_role: Identifier
    source_id: Identifier
    sensitivity_level: Sensitivity
    user_id: Identifier = "example-user"
    task_type: Identifier | None = None
    agent_id: Identifier | None = None


class ReviewedPolicies(PolicySetBody):
    """A set of policies, and what to try on it."""

    example: ClassVar[dict[str, Any]] = {
        "policies": [PolicyBody.example],
        "keep_others": True,
        "tests": "tests:\n  - name: contracts can be read\n    ask: {agent_role: loan_underwriter, "
        "source_id: contracts, sensitivity_level: low}\n    expect: {decision: ALLOW}\n",
    }

    tests: str | None = Field(
        None, max_length=MAX_TESTS, description="A file of tests in YAML, to be decided by the set."
    )
    ask: Annotated[
        TriedRetrieval | None,
        says(
            "A request to be decided by the set, and explained. Its agent counts as "
            "approved, and the key as unbound."
        ),
    ] = None


def shown_policy(policy: StoredPolicy, changed_by: str) -> PolicyResponse:
    return PolicyResponse(
        **policy.body,
        **{name: getattr(policy, name) for name in ("policy_id", "version", "file")},
        user_modified=policy.user_modified,
        changed_by=changed_by,
        created_at=rfc3339(policy.created_at),
        updated_at=rfc3339(policy.updated_at),
    )
