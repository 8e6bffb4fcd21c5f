"""One pod as the rules look at it: its parts by name, and their owners. Decides nothing.

Any other value in place of an object or a list counts as absent: the API server has checked the
types before anyone asks us, and refuses what `sluice inject` reads from a file.
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
    """Return the object at the end of `keys`; empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(holder: Json, key: str) -> list[Any]:
    """Return the list `key` of `holder`; empty if there is none."""
    value = holder.get(key)
    return value if isinstance(value, list) else []


def objects(holder: Json, key: str) -> list[Json]:
    """Return the objects in the list `key` of `holder`."""
    return [each for each in items(holder, key) if isinstance(each, dict)]


@dataclass(frozen=True)
class PodView:
    """A pod that is about to be admitted, and the facts by which it is judged."""

    pod: Json
    fragment: Fragment
    """The injected parts in the pod's form, with the name of its ServiceAccount filled in."""
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
        """True if the pod declines the sidecar, and its namespace lets it."""
        declined = inject_label(self.pod) == "disabled"
        return declined and self.namespace.governance is Governance.OPTIONAL

    @property
    def transparent(self) -> bool:
        return self.fragment.mode == "transparent"

    @cached_property
    def foreign(self) -> list[Json]:
        """Every container that is not ours by its place and name, without ephemeral ones."""
        return [
            each
            for kind in ("containers", "initContainers")
            for each in objects(self.spec, kind)
            if each.get("name") not in self.own_names(kind)
        ]

    def own(self, kind: str) -> tuple[Json, ...]:
        """Return our containers in the list `kind` of a pod of this form."""
        ours = self.fragment
        return ours.init_containers if kind == "initContainers" else ours.containers

    def own_names(self, kind: str) -> list[str]:
        """Return the names of our containers in the list `kind`."""
        return [each["name"] for each in self.own(kind)]

    @cached_property
    def foreign_volumes(self) -> list[Json]:
        """The volumes that are not ours by name. A pod that opted out has none of ours."""
        if self.opted_out:
            return objects(self.spec, "volumes")
        # A tuple: in a set, a name that is no text can't be looked up.
        ours = tuple(self.fragment.volume_names)
        return [each for each in objects(self.spec, "volumes") if each.get("name") not in ours]

    @property
    def unchanged(self) -> bool:
        """True if an update changes neither the spec nor anything that we read, such as a finalizer
        that a controller removes. Refusing it would keep a pod from before the label from
        ending."""
        return (
            self.operation == "UPDATE"
            and self.pod.get("spec") == self.old.get("spec")
            and inject_label(self.pod) == inject_label(self.old)
            and option_annotations(self.pod) == option_annotations(self.old)
        )


def account_of(pod: Json) -> str:
    """Return the name of the pod's ServiceAccount."""
    spec = mapping(pod, "spec")
    # Manifests may use the field's old name; the API server copies it.
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    return name if isinstance(name, str) and name else "default"


def form_of(pod: Json, fragment: Fragment) -> Fragment:
    """Return the fragment as it goes into this pod: for its account, and with the sidecar as the
    option `native-sidecar` says, if that is allowed."""
    return fragment.for_account(
        account_of(pod), native=option_annotations(pod).get(f"{OPTIONS}{NATIVE}") != "false"
    )


def inject_label(pod: Json) -> object:
    """Return the pod's own label `sluice/inject`."""
    return mapping(pod, "metadata", "labels").get(LABEL, "")


def option_annotations(pod: Json) -> dict[str, Any]:
    """Return the pod's annotations `config.sluice/<option>`."""
    annotations = mapping(pod, "metadata", "annotations")
    return {key: value for key, value in annotations.items() if key.startswith(OPTIONS)}


def name_of(container: Json) -> str:
    """Return the name of the container in a message."""
    return str(container.get("name", ""))


def named(containers: list[Json], *, allowed: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the containers with a name of ours, other than `allowed`."""
    for container in containers:
        if container.get("name") in OWN and container.get("name") not in allowed:
            yield name_of(container)
