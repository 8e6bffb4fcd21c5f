"""The fragment: what is injected, as the chart renders it into `injection.yaml`. Reads and
validates its text, with all complaints at once. Knows no pod.

The webhook, `sluice inject` and the admission policies are made from this one text. Only the name
of the pod's ServiceAccount is filled in; a pod's options reach the containers by the downward API.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from control_api.admission.notation import kubernetes_yaml
from control_api.admission.template_rules import complaints
from control_api.admission.vocabulary import Json
from policies import __version__
from policies.ground.settings import SettingsError

PLACEHOLDER = "{serviceAccountName}"
PACKAGED = Path(__file__).with_name("injection.yaml")
"""The chart's rendering with default values. A test compares the two."""
KEY = "injection.yaml"
"""The fragment's key in its ConfigMap."""
MAX_BYTES = 262_144
MAX_ACCOUNTS = 1024
"""As many filled-in fragments are kept."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a pod gets: containers, volumes and environment."""

    mode: str
    """`explicit`: the containers are told of the proxy by environment variables. `transparent`:
    their connections are redirected."""
    init_containers: tuple[Json, ...]
    """Our init containers, complete, in their order: `sluice-init` if transparent, `sluice-proxy`
    unless it is an ordinary container."""
    volumes: tuple[Json, ...]
    environment: tuple[Json, ...]
    """What the pod's own containers get, unless they set the variable themselves."""
    options: frozenset[str]
    """The `config.sluice/<option>` annotations that a pod may have."""
    user: int
    """The user of the sidecar: no other container may run as it."""
    group: int
    version: str
    digest: str
    """SHA-256 of what the fragment says, in whichever form it was written."""
    containers: tuple[Json, ...] = ()
    """`sluice-proxy` as an ordinary container, for pods whose option `native-sidecar` is `false`.
    Empty if the option is not allowed."""
    _filled: dict[tuple[str, bool], Fragment] = field(
        default_factory=dict, compare=False, repr=False
    )

    def for_account(self, name: str, *, native: bool = True) -> Fragment:
        """The fragment with the name of the pod's ServiceAccount filled in. It holds `sluice-proxy`
        once: as an init container if `native`, else as an ordinary one."""
        found = self._filled.get((name, native))
        if found is None:
            # Half of a review's time went into filling in the same few names again.
            if len(self._filled) >= MAX_ACCOUNTS:
                self._filled.clear()
            found = self._filled[name, native] = self._for_account(name, native)
        return found

    def _for_account(self, name: str, native: bool) -> Fragment:
        ordinary = () if native else self.containers
        elsewhere = [each["name"] for each in ordinary]
        first = tuple(each for each in self.init_containers if each["name"] not in elsewhere)
        return Fragment(
            mode=self.mode,
            init_containers=_filled(first, name),
            containers=_filled(ordinary, name),
            volumes=_filled(self.volumes, name),
            environment=_filled(self.environment, name),
            options=self.options,
            user=self.user,
            group=self.group,
            version=self.version,
            digest=self.digest,
        )

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of our containers, in the order in which they start."""
        return tuple(each["name"] for each in (*self.init_containers, *self.containers))

    @property
    def volume_names(self) -> frozenset[str]:
        """The volumes that only our containers may mount."""
        return frozenset(volume["name"] for volume in self.volumes)


def read(text: str, source: str, version: str = __version__) -> Fragment:
    """The fragment that `text` holds: itself, or as the key `injection.yaml` of a ConfigMap's
    manifest. Raises `SettingsError` with every complaint; `source` names the text in them."""
    tree = _load(text, source)
    if isinstance(tree, dict) and tree.get("kind") == "ConfigMap":
        held = tree.get("data")
        inner = held.get(KEY) if isinstance(held, dict) else None
        if not isinstance(inner, str):
            raise SettingsError([f"{source}: the ConfigMap has no text under `data.{KEY}`"])
        tree = _load(inner, source)
    found = complaints(tree)
    if found:
        raise SettingsError([f"{source}: {complaint}" for complaint in found])
    return _fragment(tree, version)


def packaged() -> Fragment:
    """The fragment that comes with the wheel."""
    return read(PACKAGED.read_text(encoding="utf-8"), str(PACKAGED))


def _load(text: str, source: str) -> Any:
    if len(text) > MAX_BYTES:
        raise SettingsError([f"{source}: {len(text)} characters are over the limit of {MAX_BYTES}"])
    try:
        return kubernetes_yaml.load(text)
    except kubernetes_yaml.Unreadable as error:
        raise SettingsError([f"{source}: not valid YAML: {error}"]) from error


def _fragment(tree: Mapping[str, Any], version: str) -> Fragment:
    written = json.dumps(tree, sort_keys=True, separators=(",", ":"))
    return Fragment(
        mode=tree["mode"],
        init_containers=tuple(tree["initContainers"]),
        containers=tuple(tree.get("containers", ())),
        volumes=tuple(tree["volumes"]),
        environment=tuple(tree["environment"]),
        options=frozenset(tree["options"]),
        user=tree["reserved"]["user"],
        group=tree["reserved"]["group"],
        version=version,
        digest=hashlib.sha256(written.encode()).hexdigest(),
    )


def _filled(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.replace(PLACEHOLDER, name)
    if isinstance(value, tuple):
        return tuple(_filled(each, name) for each in value)
    if isinstance(value, list):
        return [_filled(each, name) for each in value]
    if isinstance(value, Mapping):
        return {key: _filled(each, name) for key, each in value.items()}
    return value
