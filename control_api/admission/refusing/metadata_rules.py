"""Refuses what a pod's annotations and its namespace's labels say."""

from __future__ import annotations

from collections.abc import Iterator

from control_api.admission.options import fits
from control_api.admission.refusing.pod_view import PodView, inject_label, option_annotations
from control_api.admission.vocabulary import OPTIONS, Governance


def opt_outs(view: PodView) -> Iterator[str]:
    """The namespace, if it lets no pod decline the sidecar, and this one does."""
    declined = inject_label(view.pod) == "disabled"
    if declined and view.namespace.governance is Governance.ENABLED:
        yield view.namespace.name


def options(view: PodView) -> Iterator[str]:
    """Annotations that set an option which the chart's values don't allow."""
    for key in sorted(option_annotations(view.pod)):
        if key.removeprefix(OPTIONS) not in view.fragment.options:
            yield key


def option_values(view: PodView) -> Iterator[str]:
    """Annotations with a value that their option can't have: it would reach our containers."""
    given = option_annotations(view.pod)
    for option in sorted(view.fragment.options):
        key = f"{OPTIONS}{option}"
        if key in given and not fits(option, given[key]):
            yield key


def restricted(view: PodView) -> Iterator[str]:
    """The namespace, if its Pod Security Standard forbids the init container."""
    if view.transparent and view.namespace.pod_security == "restricted":
        yield view.namespace.name
