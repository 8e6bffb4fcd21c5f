"""The names that Sluice uses in Kubernetes objects, and the types of a verdict on a pod, which the
webhook, `sluice inject` and the metrics share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

Json = Mapping[str, Any]
"""A JSON object from outside. Its values may have any type."""

LABEL: Final = "sluice/inject"
"""The label by which a namespace requests injection for its pods, and by which a pod can decline
it."""
STATUS: Final = "sluice/status"
"""The annotation that states which parts were injected. It is only written, never read."""
OPTIONS: Final = "config.sluice/"
"""The prefix of the annotations that set a pod's options."""

INIT: Final = "sluice-init"
PROXY: Final = "sluice-proxy"
OWN: Final = (INIT, PROXY)
"""The names of the containers that Sluice injects, in the order in which they start."""

POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"

MAX_MESSAGE: Final = 400
"""The most characters of a refusal that are returned to the pod's author."""

Operation = Literal["CREATE", "UPDATE"]


class Governance(StrEnum):
    """The values of a namespace's label `sluice/inject`: whether its pods get the sidecar."""

    ENABLED = "enabled"
    """Every pod gets the sidecar."""
    OPTIONAL = "optional"
    """Every pod gets the sidecar, except those that decline it by their own label."""
    NONE = "none"
    """The namespace has no such label, or another value: its pods are not governed."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The namespace of a pod, with its labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def governance(self) -> Governance:
        """The namespace's label, parsed: whether its pods get the sidecar, and whether they may
        decline it."""
        value = self.labels.get(LABEL)
        return Governance(value) if value in ("enabled", "optional") else Governance.NONE

    @property
    def pod_security(self) -> str:
        """The Pod Security Standard that the namespace enforces: `privileged`, `baseline` or
        `restricted`."""
        return self.labels.get(POD_SECURITY) or "privileged"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why a pod may not run in a governed namespace."""

    rule: str
    """The rule's name, from a closed set: a label of metrics and a row of the README's table."""
    message: str
    """The fault and how to correct it, for the author of the pod."""

    def __str__(self) -> str:
        # Names in a message are the author's, and the API server checks them only afterwards: one
        # with line breaks or a megabyte must not fill a log or a terminal.
        plain = self.message if self.message.isprintable() else ascii(self.message)[1:-1]
        text = plain if len(plain) <= MAX_MESSAGE else f"{plain[:MAX_MESSAGE]}…"
        return f"{text} ({self.rule})"


class Outcome(StrEnum):
    """The outcome of a review, for a pod or for a request that should have held one."""

    injected = "injected"
    unchanged = "unchanged"
    """The pod already has all injected parts; the patch is empty."""
    skipped = "skipped"
    refused = "refused"
    malformed = "malformed"
    """The request is not an AdmissionReview that can be read; it is answered with 4xx."""
    failed = "failed"
    """The webhook has a bug or is overloaded; the request is answered with 5xx."""


class SkipReason(StrEnum):
    """The reason why a pod is left as it is; `none` unless the outcome is `skipped`."""

    none = "none"
    not_governed = "not_governed"
    """The namespace has no label that asks for injection."""
    opted_out = "opted_out"
    """The pod has the label `sluice/inject: disabled`, and its namespace permits that."""
    not_a_pod = "not_a_pod"
    not_created = "not_created"
    """The pod is not being created, and containers can be added only then."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a pod, with its reason. `patch` is a JSON Patch (RFC 6902): the list of
    its operations."""

    outcome: Outcome
    patch: tuple[dict[str, Any], ...] = ()
    skip_reason: SkipReason = SkipReason.none
    message: str = ""
    """The reason why the pod was refused or skipped, for its author; empty otherwise."""
    refusals: tuple[Refusal, ...] = ()
    """The rules that a refused pod breaks; `message` is made from them."""
    warnings: tuple[str, ...] = field(default=())
    """Warnings for the pod's author about an admitted pod, which kubectl shows."""

    @property
    def admitted(self) -> bool:
        return self.outcome is not Outcome.refused
