"""Defines a candidate's name and policies in a request, and the responses about candidates
(`TOOLS.md`, Candidates)."""

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import orjson
from pydantic import Field

from control_api.edge.field_descriptions import says
from control_api.edge.requests import TAGS, Identifier, IfMatch, RequestModel, put_back
from control_api.policy.access_models import CHANGED_ROW, BrokenGuardrail, ChangedRow
from control_api.policy.impact_counts import DecisionGroup
from control_api.policy.models import UNSTORED, PolicyBody, PolicySet, PolicySetBody
from policies.definitions.model import Policy
from policies.ground.canonical import encode, identifier_fault, parse_object
from policies.ground.errors import Invalid, invalid
from policies.sets.policy_set import role_document

_NOW = "2026-01-31T12:00:00.000000Z"

CANDIDATE_NAME = says("The candidate's name, unique in the tenant.")
EvaluatedFrom = Annotated[
    int,
    says(
        "The revision of the policy set from which the candidate is evaluated. Its counts "
        "begin there."
    ),
]


@dataclass(frozen=True, slots=True)
class CandidateListed:
    """A candidate, and how its decisions compare with the recorded ones. `decided` counts the
    events that were decided by a policy set with this candidate; `same` is what remains without
    the other three."""

    name: Annotated[str, CANDIDATE_NAME]
    revision: EvaluatedFrom
    created_at: str
    decided: Annotated[int, says("Events that the candidate was evaluated for.")]
    same: Annotated[int, says("Events that the candidate decides alike.")]
    newly_denied: int
    newly_allowed: int
    error: Annotated[int, says("Events for which the candidate could not be read or evaluated.")]

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "revision": 1042,
        "created_at": _NOW,
        "decided": 81920,
        "same": 81907,
        "newly_denied": 12,
        "newly_allowed": 1,
        "error": 0,
    }


@dataclass(frozen=True, slots=True)
class CandidateResponse(CandidateListed):
    """A candidate, and the groups of decisions that it makes otherwise: those with the most events,
    at most a thousand."""

    groups: list[DecisionGroup]

    example: ClassVar[dict[str, Any]] = {
        **CandidateListed.example,
        "groups": [DecisionGroup.example],
    }


@dataclass(frozen=True, slots=True)
class CandidatePublished:
    """A candidate as it is now beside the active policies. `policies` is their number."""

    name: Annotated[str, CANDIDATE_NAME]
    revision: EvaluatedFrom
    created_at: str
    policies: Annotated[int, says("How many policies the candidate has.")]

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "revision": 1042,
        "created_at": _NOW,
        "policies": 1,
    }


AddedPolicies = Annotated[list[str], says("The names of policies that are new.")]
UpdatedPolicies = Annotated[list[str], says("The names of policies that are changed.")]
RemovedPolicies = Annotated[
    list[str], says("The names of policies that the candidate lacks: deleted.")
]


@dataclass(frozen=True, slots=True)
class CandidateReview:
    """The effects of a candidate's promotion: the requests that are decided otherwise, the
    guardrails that would refuse it, and policies by name. `changed_since` are the roles whose
    policies in force changed after the candidate was published, at most a hundred; a promotion puts
    back what it was made from. `version` is of both sides, for `If-Match` of the promotion."""

    name: Annotated[str, CANDIDATE_NAME]
    version: Annotated[str, says("What was reviewed, for `If-Match` of the promotion.")]
    changed_since: Annotated[
        list[str],
        says(
            "The roles whose policies in force changed after the candidate was published, at most "
            "a hundred. A promotion undoes such changes."
        ),
    ]
    newly_allowed: list[ChangedRow]
    newly_denied: list[ChangedRow]
    broken_guardrails: list[BrokenGuardrail]
    added: AddedPolicies
    updated: UpdatedPolicies
    removed: RemovedPolicies

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "version": "1042-1040",
        "changed_since": [],
        "newly_allowed": [CHANGED_ROW],
        "newly_denied": [],
        "broken_guardrails": [],
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "removed": [],
    }


@dataclass(frozen=True, slots=True)
class CandidatePromoted:
    """The changes of a promotion, by policy name."""

    name: Annotated[str, CANDIDATE_NAME]
    added: AddedPolicies
    updated: UpdatedPolicies
    unchanged: list[str]
    removed: RemovedPolicies

    example: ClassVar[dict[str, Any]] = {
        "name": "tomorrow",
        "added": ["claims-review"],
        "updated": ["loan-underwriting"],
        "unchanged": [],
        "removed": [],
    }


# No `/`: the name is part of documents' names (`policies.sets.policy_set.candidate_name`).
CandidateName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9._-]{0,63}$", examples=["tomorrow"])]
_PLACE = re.compile(r"policies\.([0-9]{1,6})(?=[.:])")


class CandidateRequest(RequestModel):
    """A request about one candidate, which the path names. Any name is accepted here: one that no
    candidate can have leads to a 404."""

    name: Annotated[Identifier, CANDIDATE_NAME]


class PromotedCandidate(CandidateRequest):
    """Names the candidate. With `If-Match`, it is promoted only if it and the policies in force are
    as they were reviewed."""

    in_header: ClassVar[Mapping[str, str]] = {"if_match": "If-Match"}

    if_match: IfMatch | None = Field(
        None,
        description="Promote only what was reviewed: the `version` of the review, between quotes.",
        json_schema_extra={"pattern": TAGS, "examples": ['"1042-1040"', "*"]},
    )


class CandidatePolicies(PolicySetBody):
    """The candidate's whole policy set."""

    example: ClassVar[dict[str, Any]] = {"policies": [PolicyBody.example]}

    shown = CandidateResponse

    policies: Annotated[PolicySet, says("All policies of the candidate, without ids.")]
    name: Annotated[CandidateName, CANDIDATE_NAME]

    @classmethod
    def read(cls, values: dict[str, Any]) -> Any:
        """Return the validated request. Raise `Invalid` with complaints that name the policy, since
        its position in a list of thousands would say little."""
        try:
            return super().read(values)
        except Invalid as refusal:
            lines = (refusal.details or "").splitlines()
            named = [_named(line, values.get("policies")) for line in lines]
            raise invalid(named, "request") from None


def _named(complaint: str, policies: Any) -> str:
    place = _PLACE.match(complaint)
    if place is None:
        return complaint
    policy = policies[int(place[1])]
    name = policy.get("name") if isinstance(policy, dict) else None
    if not isinstance(name, str) or identifier_fault(name):
        return complaint
    return f"{place[0]} (`{name}`){complaint[place.end() :]}"


class PreparedCandidate(NamedTuple):
    """A request that publishes a candidate, decoded and validated. `policies` is the number of
    policies, `sha256` the hex digest over all of them, and `documents` holds the document of each
    role."""

    policies: int
    sha256: str
    documents: dict[str, bytes]


def prepare(name: str, body: bytes, in_force: bytes) -> bytes:
    """Decode and validate a request that publishes a candidate, and encode it for `read_prepared`.
    `in_force` is the JSON array of the documents of all roles. Raise `Malformed` if the body can't
    be parsed, and `Invalid` with all complaints if it is not valid.

    A policy that equals the one of its name in force keeps that policy's id and version. A role
    that the candidate does not change then has the same document, and need not be evaluated again.
    """
    path = {"name": name}
    fields, complaints = put_back(CandidatePolicies, parse_object(body, None, unique=True), path)
    if complaints:
        raise invalid(complaints, "request")
    request = CandidatePolicies.read({**fields, **path})
    bodies = request.bodies(in_force)
    active = {wire["name"]: wire for document in orjson.loads(in_force) for wire in document}
    by_role: dict[str, list[Policy]] = {}
    for each in bodies:
        held = active.get(each["name"], {})
        wire = held if held.items() >= each.items() else each | UNSTORED
        by_role.setdefault(each["agent_role"], []).append(Policy.from_wire(wire))
    documents = {role: role_document(policies) or b"" for role, policies in by_role.items()}
    sizes = {role: len(document) for role, document in documents.items()}
    head = [len(bodies), hashlib.sha256(encode(bodies)).hexdigest(), sizes]
    return b"\n".join((orjson.dumps(head), b"".join(documents.values())))


def read_prepared(prepared: bytes) -> PreparedCandidate:
    """Decode what `prepare` encoded. The documents, which may be large, stay JSON bytes."""
    line, _, rest = prepared.partition(b"\n")
    policies, sha256, sizes = orjson.loads(line)
    bodies = io.BytesIO(rest)
    return PreparedCandidate(
        policies, sha256, {role: bodies.read(size) for role, size in sizes.items()}
    )
