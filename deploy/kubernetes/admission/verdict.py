"""The answer to one pod: what the webhook, `sluice inject` and the metrics agree on. Knows neither
the AdmissionReview that carries it nor how it was found."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from deploy.kubernetes.admission.vocabulary import Refusal


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
