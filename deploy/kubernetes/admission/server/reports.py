"""Turns the answer to a review into an Event on the pod's owner. Pure.

A pod that is being created has no uid yet, and often no name, so the Event goes to the controller
that creates it: the ReplicaSet, the Job. A pod without one gets the Event itself.
"""

from __future__ import annotations

from typing import Any

from deploy.kubernetes.admission.kubernetes.events import Event, EventReason
from deploy.kubernetes.admission.review import Review
from deploy.kubernetes.admission.verdict import Outcome, SkipReason, Verdict

_FIELDS = ("apiVersion", "kind", "name", "uid")
MAX_FIELD = 253
_REASONS = {
    Outcome.injected: EventReason.injected,
    Outcome.skipped: EventReason.skipped,
}


def event_of(review: Review, verdict: Verdict) -> Event | None:
    """The Event for this answer; None if there is nothing to tell."""
    reason = _REASONS.get(verdict.outcome)
    if reason is None or review.pod is None or review.dry_run:
        return None
    note = verdict.message or (
        "the Sluice sidecar was added"
        if reason is EventReason.injected
        else f"the Sluice sidecar was not added: {_words(verdict.skip_reason)}"
    )
    return Event(review.namespace, _owner(review.pod), reason, note)


def _owner(pod: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The reference to the controller; to the pod itself if it has no controller."""
    found = pod.get("metadata")
    metadata = found if isinstance(found, dict) else {}
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else []:
        if isinstance(owner, dict) and owner.get("controller") is True:
            # The pod's author wrote this. The API server checks the form; the Event stays in the
            # pod's namespace in any case.
            return tuple((name, str(owner.get(name, ""))[:MAX_FIELD]) for name in _FIELDS)
    name = str(metadata.get("name") or metadata.get("generateName") or "")[:MAX_FIELD]
    return (("apiVersion", "v1"), ("kind", "Pod"), ("name", name))


def _words(reason: SkipReason) -> str:
    return reason.value.replace("_", " ")
