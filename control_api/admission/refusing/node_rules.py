"""Refuses pods that run where the sidecar can't, or whatever the API server says of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from control_api.admission.refusing.pod_view import PodView, mapping

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation by which a kubelet shows a static pod. The API server lets no update change it."""
_SYSTEMS: Final = ("kubernetes.io/os", "beta.kubernetes.io/os")


def windows(view: PodView) -> Iterator[str]:
    """The fields that ask for Windows nodes: the sidecar's image is for Linux."""
    if mapping(view.spec, "os").get("name") == "windows":
        yield "os.name"
    selector = mapping(view.spec, "nodeSelector")
    for key in _SYSTEMS:
        if selector.get(key) == "windows":
            yield key


def mirrors(view: PodView) -> Iterator[str]:
    """The annotation of a static pod's mirror: its kubelet runs the pod from a file, without what
    is injected here."""
    if MIRROR in mapping(view.pod, "metadata", "annotations"):
        yield MIRROR
