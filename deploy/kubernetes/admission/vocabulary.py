"""The names that Sluice uses in Kubernetes objects, and the nouns that admission is written in.
Knows no rule and no template."""

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
"""The annotation that tells what was injected. Output only: never read as input."""
OPTIONS: Final = "config.sluice/"
"""The prefix of the annotations by which a pod sets options."""

INIT: Final = "sluice-init"
PROXY: Final = "sluice-proxy"
OWN: Final = (INIT, PROXY)
"""The names of our containers, in the order in which they start."""

POD_SECURITY: Final = "pod-security.kubernetes.io/enforce"

MAX_MESSAGE: Final = 400
"""Characters of a refusal that are told."""

Operation = Literal["CREATE", "UPDATE"]


class Governance(StrEnum):
    """What a namespace's label `sluice/inject` says."""

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
        """Whether the namespace is governed, and whether its pods may decline."""
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
    """What is wrong and what to do, for the author of the pod."""

    def __str__(self) -> str:
        # Names in a message are the author's, and the API server checks them only afterwards: one
        # with line breaks or a megabyte must not fill a log or a terminal.
        plain = self.message if self.message.isprintable() else ascii(self.message)[1:-1]
        text = plain if len(plain) <= MAX_MESSAGE else f"{plain[:MAX_MESSAGE]}…"
        return f"{text} ({self.rule})"
