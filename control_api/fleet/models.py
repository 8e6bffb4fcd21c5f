"""Defines the responses to sidecars and about them: the policy set, enrolment, reports."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from control_api.edge.field_descriptions import says
from policies.definitions.model import AgentStatus

_NOW = "2026-01-31T12:00:00.000000Z"

MAX_PAGE_BYTES = 768 * 1024
"""The most bytes in all document bodies of one `PolicySetPage` together."""


@dataclass(frozen=True, slots=True)
class EnrolledSidecar:
    """A pod's agent, and the keys of its sidecar and of the agent. Everything from `enrolment` on
    is null unless the agent is approved. The keys are live while the agent's document
    `enrolment/<agent_id>` in the policy set names the same generation as `enrolment`."""

    tenant_id: str
    workload: str
    agent_id: str
    agent_role: str
    status: Annotated[
        AgentStatus, says("The agent's status. There are keys only if it is `approved`.")
    ]
    enrolment: Annotated[
        str | None,
        says("The generation that the keys belong to. They die when the agent's changes."),
    ]
    sidecar_key: Annotated[str | None, says("The sidecar's key. Shown only in this response.")]
    agent_key: Annotated[
        str | None,
        says("The agent's key, which speaks for this agent alone. Shown only in this response."),
    ]
    agent_key_id: Annotated[str | None, says("The id of the agent's key.")]
    expires_at: Annotated[str | None, says("When both keys expire (RFC 3339, UTC).")]
    expires_in: Annotated[int | None, says("In how many seconds both keys expire.")]

    example: ClassVar[dict[str, Any]] = {
        "tenant_id": "default",
        "workload": "https://kubernetes.default.svc:system:serviceaccount:lending:loans",
        "agent_id": "agt_loans",
        "agent_role": "loan_underwriter",
        "status": "approved",
        "enrolment": "enr_3nB7xGvQ2mT5kWc8LpR0aZ",
        "sidecar_key": "slc_" + "0" * 49,
        "agent_key": "slc_" + "1" * 49,
        "agent_key_id": "key_3nB7xGvQ2mT5kWc8LpR0aZ",
        "expires_at": "2026-01-31T13:00:00.000000Z",
        "expires_in": 3600,
    }


@dataclass(frozen=True, slots=True)
class Heard:
    """The control API's time and the tenant's revision. A report with `pinned_size` is shown the
    latest checkpoint, and the proof that it continues the one of that size."""

    now: str
    revision: int
    checkpoint: str | None
    consistency: Annotated[
        list[str] | None,
        says(
            "The hashes of the consistency proof (RFC 9162) from the size that was asked for; "
            "`null` if there is none to show."
        ),
    ]

    example: ClassVar[dict[str, Any]] = {
        "now": _NOW,
        "revision": 42,
        "checkpoint": None,
        "consistency": None,
    }


REPORTED: dict[str, Any] = {
    "sidecar_id": "sidecar-1",
    "version": "1.0.0",
    "agent_id": "agt_loans",
    "agent_role": "loan_underwriter",
    "epoch": "0194bd6e7c007a1b",
    "revision": 42,
    "policy_set_age_ms": 1200,
    "spool_depth": 0,
    "oldest_unshipped_ms": None,
    "refusing": None,
    "workload": None,
    "enrolled_until": None,
    "forked": None,
}
"""The fields of a report that the list of sidecars shows unchanged, with an example of each."""

SIDECAR_VERSION = says("The sidecar's software version.")


@dataclass(frozen=True, slots=True)
class SidecarResponse:
    """A sidecar's last report, with ages in milliseconds as of `last_seen`. `live` means that it
    reported recently, `duplicate` that two processes report the same id; `refusing` is why it is
    not ready, `forked` how the log contradicts the checkpoint that it has pinned. Without
    `source_levels`, it ignores the levels that the tenant states of sources."""

    sidecar_id: str
    version: Annotated[str, SIDECAR_VERSION]
    agent_id: str | None
    agent_role: str | None
    epoch: str
    revision: int
    policy_set_age_ms: int | None
    spool_depth: int
    oldest_unshipped_ms: int | None
    refusing: str | None
    workload: str | None
    enrolled_until: str | None
    forked: str | None
    first_seen: Annotated[str, says("When the sidecar first reported (RFC 3339, UTC).")]
    last_seen: str
    live: Annotated[bool, says("Whether the sidecar reported recently.")]
    duplicate: Annotated[bool, says("Whether two running sidecars report the same id.")]
    source_levels: bool

    example: ClassVar[dict[str, Any]] = {
        **REPORTED,
        "first_seen": _NOW,
        "last_seen": _NOW,
        "live": True,
        "duplicate": False,
        "source_levels": True,
    }


@dataclass(frozen=True, slots=True)
class SetDocument:
    """A document of the policy set; `body` is its canonical JSON, null if it was removed."""

    name: Annotated[
        str, says("The document's name, for example `role/support` or `agent/agt_loans`.")
    ]
    revision: Annotated[int, says("The revision in which the document last changed.")]
    digest: Annotated[
        str | None, says("SHA-256 of the document, in hex. `null` if the document was removed.")
    ]
    body: Annotated[
        str | None, says("The document as canonical JSON. `null` if the document was removed.")
    ]


@dataclass(frozen=True, slots=True)
class PolicySetPage:
    """The documents of the policy set that changed since a revision. A page without documents is
    the heartbeat. In `log_key_history` each key that signed the log endorses the next, oldest
    first."""

    epoch: str
    revision: int
    reset: Annotated[
        bool,
        says("Whether to drop the local copy first: the documents that follow are a complete set."),
    ]
    more: Annotated[
        bool,
        says(
            "Whether more documents remain. Ask again: from this revision, or for the missing "
            "names."
        ),
    ]
    now: str
    tenant_id: str
    log_key: str
    log_key_history: list[dict[str, str]]
    documents: Annotated[
        list[SetDocument], says("The documents that were requested or that changed.")
    ]

    example: ClassVar[dict[str, Any]] = {
        "epoch": "0194bd6e7c007a1b",
        "revision": 42,
        "reset": False,
        "more": False,
        "now": _NOW,
        "tenant_id": "default",
        "log_key": "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw=",
        "log_key_history": [],
        "documents": [{"name": "agent/agt_loans", "revision": 42, "digest": None, "body": None}],
    }
