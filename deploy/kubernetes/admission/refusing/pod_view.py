"""Gives the rules access to the parts of one pod, and tells which of them are Sluice's and which
are the author's. Makes no decision.

A value of another type in place of an object or a list counts as absent: the API server has checked
the types before it calls the webhook, and refuses such values when the output of `sluice inject` is
applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from deploy.kubernetes.admission.settings import NATIVE
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import (
    LABEL,
    OPTIONS,
    OWN,
    Governance,
    Json,
    Namespace,
    Operation,
)

PORTS: Final = (8710, 8711, 8712)
"""The sidecar's ports: its API, the forward proxy and the transparent listener."""


def mapping(value: object, *keys: str) -> Json:
    """Return the object that `keys` lead to inside `value`; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(holder: Json, key: str) -> list[Any]:
    """Return the list under `key`; an empty one if there is none."""
    value = holder.get(key)
    return value if isinstance(value, list) else []


def objects(holder: Json, key: str) -> list[Json]:
    """Return those items of the list under `key` that are objects."""
    return [each for each in items(holder, key) if isinstance(each, dict)]


@dataclass(frozen=True)
class PodView:
    """A pod that is to be admitted, and everything that the rules judge it by."""

    pod: Json
    fragment: Fragment
    """The parts that Sluice would inject into this pod, with the name of its ServiceAccount filled
    in."""
    namespace: Namespace
    operation: Operation
    old: Json
    """The pod before an update; empty if it is being created."""

    @cached_property
    def spec(self) -> Json:
        return mapping(self.pod, "spec")

    @cached_property
    def security(self) -> Json:
        return mapping(self.spec, "securityContext")

    @cached_property
    def opted_out(self) -> bool:
        """True if the pod's label declines the sidecar, and its namespace permits that."""
        declined = inject_label(self.pod) == "disabled"
        return declined and self.namespace.governance is Governance.OPTIONAL

    @property
    def transparent(self) -> bool:
        return self.fragment.mode == "transparent"

    @cached_property
    def author_containers(self) -> list[Json]:
        """Every container of the pod's author, without ephemeral ones; the chart's CEL calls them
        `variables.foreign`. Sluice's own containers are recognised by their list and name."""
        return [
            each
            for kind in ("containers", "initContainers")
            for each in objects(self.spec, kind)
            if each.get("name") not in self.sluice_names(kind)
        ]

    def sluice_containers(self, kind: str) -> tuple[Json, ...]:
        """Return the containers that Sluice injects into the list `kind` of this pod."""
        ours = self.fragment
        return ours.init_containers if kind == "initContainers" else ours.containers

    def sluice_names(self, kind: str) -> list[str]:
        """Return the names of the containers that Sluice injects into the list `kind` of this
        pod."""
        return [each["name"] for each in self.sluice_containers(kind)]

    @cached_property
    def author_volumes(self) -> list[Json]:
        """The volumes of the pod's author. Sluice's own are recognised by name; a pod that opted
        out has none of them."""
        if self.opted_out:
            return objects(self.spec, "volumes")
        # A tuple: in a set, a name that is no text can't be looked up.
        ours = tuple(self.fragment.volume_names)
        return [each for each in objects(self.spec, "volumes") if each.get("name") not in ours]

    @property
    def unchanged(self) -> bool:
        """True if an update changes neither the spec nor the labels and annotations that the rules
        read; for example, a controller removes a finalizer. To refuse such an update would keep a
        pod that is older than the namespace's label from ending."""
        return (
            self.operation == "UPDATE"
            and self.pod.get("spec") == self.old.get("spec")
            and inject_label(self.pod) == inject_label(self.old)
            and option_annotations(self.pod) == option_annotations(self.old)
        )


def account_of(pod: Json) -> str:
    """Return the name of the pod's ServiceAccount, `default` if it names none."""
    spec = mapping(pod, "spec")
    # Manifests may use the field's old name; the API server copies it.
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    return name if isinstance(name, str) and name else "default"


def form_of(pod: Json, fragment: Fragment) -> Fragment:
    """Return the parts to inject into this pod: with its ServiceAccount filled in, and with the
    sidecar as a native or an ordinary container, as the option `native-sidecar` says."""
    return fragment.for_account(
        account_of(pod), native=option_annotations(pod).get(f"{OPTIONS}{NATIVE}") != "false"
    )


def inject_label(pod: Json) -> object:
    """Return the value of the pod's own label `sluice/inject`; empty if it has none."""
    return mapping(pod, "metadata", "labels").get(LABEL, "")


def option_annotations(pod: Json) -> dict[str, Any]:
    """Return the pod's annotations that set options: those that begin with `config.sluice/`."""
    annotations = mapping(pod, "metadata", "annotations")
    return {key: value for key, value in annotations.items() if key.startswith(OPTIONS)}


def name_of(container: Json) -> str:
    """Return the container's or volume's name, for a message."""
    return str(container.get("name", ""))


def named(containers: list[Json], *, allowed: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the containers that have one of Sluice's names, other than the names in `allowed`."""
    for container in containers:
        if container.get("name") in OWN and container.get("name") not in allowed:
            yield name_of(container)
