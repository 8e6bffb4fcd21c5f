"""Names what admission is written in: the names that Sluice uses in Kubernetes objects, and the
answer to one pod, on which the webhook, `sluice inject` and the metrics agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

Json = Mapping[str, Any]
"""A JSON object from outside. Everything in it may have any type."""

LABEL: Final = "sluice/inject"
"""The label of namespaces and pods that asks for injection, or declines it."""
STATUS: Final = "sluice/status"
"""The annotation that tells the injected parts. Output only: never read as input."""
OPTIONS: Final = "config.sluice/"
"""The prefix of the annotations by which a pod sets options."""

INIT: Final = "sluice-init"
PROXY: Final = "sluice-proxy"
OWN: Final = (INIT, PROXY)
"""The names of our containers, in the order in which they start."""

POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"

MAX_MESSAGE: Final = 400
"""The most characters of a refusal that are told."""

Operation = Literal["CREATE", "UPDATE"]


class Governance(StrEnum):
    """The values of a namespace's label `sluice/inject`."""

    ENABLED = "enabled"
    """Every pod gets the sidecar."""
    OPTIONAL = "optional"
    """Every pod gets the sidecar, except those whose own label declines it."""
    NONE = "none"
    """The namespace has no label, or another value: it is not governed."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The namespace of a pod, as the API server knows it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def governance(self) -> Governance:
        """The rule for the namespace: whether it is governed, and whether its pods may decline."""
        value = self.labels.get(LABEL)
        return Governance(value) if value in ("enabled", "optional") else Governance.NONE

    @property
    def pod_security(self) -> str:
        """The Pod Security Standard that it enforces: `privileged`, `baseline` or `restricted`."""
        return self.labels.get(POD_SECURITY) or "privileged"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why a pod may not run in a governed namespace."""

    rule: str
    """The rule's name, from a closed set: a label of metrics and a row of the README's table."""
    message: str
    """The fault and its remedy, for the author of the pod."""

    def __str__(self) -> str:
        # Names in a message are the author's, and the API server checks them only afterwards: one
        # with line breaks or a megabyte must not fill a log or a terminal.
        plain = self.message if self.message.isprintable() else ascii(self.message)[1:-1]
        text = plain if len(plain) <= MAX_MESSAGE else f"{plain[:MAX_MESSAGE]}…"
        return f"{text} ({self.rule})"


class Outcome(StrEnum):
    """What became of a pod, or of the request that should have held one."""

    injected = "injected"
    unchanged = "unchanged"
    """The pod already is as we would make it; the patch is empty."""
    skipped = "skipped"
    refused = "refused"
    malformed = "malformed"
    """The request is no AdmissionReview that we read; answered with 4xx."""
    failed = "failed"
    """A bug or an overload on our side; answered with 5xx."""


class SkipReason(StrEnum):
    """Why a pod is left as it is; `none` unless the outcome is `skipped`."""

    none = "none"
    not_governed = "not_governed"
    """The namespace has no label that asks for injection."""
    opted_out = "opted_out"
    """The pod says `sluice/inject: disabled`, and its namespace lets it."""
    not_a_pod = "not_a_pod"
    not_created = "not_created"
    """Containers can be added only while a pod is created."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome with its reason. `patch` is a JSON Patch (RFC 6902) in wire form."""

    outcome: Outcome
    patch: tuple[dict[str, Any], ...] = ()
    skip_reason: SkipReason = SkipReason.none
    message: str = ""
    """Why the pod was refused or skipped, for its author; empty otherwise."""
    refusals: tuple[Refusal, ...] = ()
    """What `message` says of a refused pod, one by one."""
    warnings: tuple[str, ...] = field(default=())
    """Shown by kubectl beside an answer that admits."""

    @property
    def admitted(self) -> bool:
        return self.outcome is not Outcome.refused
