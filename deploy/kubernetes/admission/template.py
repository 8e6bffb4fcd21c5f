"""Reads and validates the fragment: the containers, volumes and variables that are injected into
pods, as the chart renders them into `injection.yaml`. All complaints are reported at once.

The webhook, `sluice inject` and the admission policies are made from this one text. Only the name
of the pod's ServiceAccount is filled in; a pod's options reach the containers by the downward API.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from deploy.kubernetes.admission import kubernetes_yaml
from deploy.kubernetes.admission.settings import NATIVE, OPTIONS
from deploy.kubernetes.admission.vocabulary import INIT, OWN, PROXY, Json
from policies import __version__
from policies.ground.settings import SettingsError

_FORM = re.compile(
    r"\A([+-]?)([0-9]{1,15})(?:\.([0-9]{1,3}))?(?:(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|"
    r"[eE]([+-]?[0-9]{1,2}))?\Z"
)
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def canonical(text: str) -> str | None:
    """Return a resource quantity as the API server stores it: a whole number with the largest
    possible suffix of the same kind. Returns None if the text is not a quantity, or has an exponent
    or more than three decimals."""
    match = _FORM.match(text)
    if match is None or match[5] is not None:
        return None
    sign, whole, decimals, suffix, _ = match.groups()
    number = Fraction(int(whole + (decimals or "")), 10 ** len(decimals or ""))
    if suffix in _BINARY[1:]:
        number *= 1024 ** _BINARY.index(suffix)
        # The API server turns a binary quantity below 1 KiB into a decimal one.
        written = _binary(number) if number >= 1024 else _decimal(number)
    else:
        written = _decimal(number * Fraction(10) ** _DECIMAL[suffix or ""])
    return ("-" if sign == "-" and number else "") + written


def _binary(number: Fraction) -> str:
    if number.denominator != 1:
        return _decimal(number)
    power = 0
    while power < len(_BINARY) - 1 and number % 1024 == 0 and number:
        number /= 1024
        power += 1
    return f"{number}{_BINARY[power]}"


def _decimal(number: Fraction) -> str:
    for suffix, power in sorted(_DECIMAL.items(), key=lambda each: -each[1]):
        scaled = number / Fraction(10) ** power
        if scaled.denominator == 1 and (scaled or power == 0):
            return f"{scaled}{suffix}"
    # Less than a billionth is rounded up.
    return f"{math.ceil(number * 10**9)}n"


_KEYS = {
    "mode": str,
    "initContainers": list,
    "volumes": list,
    "environment": list,
    "options": list,
    "reserved": dict,
}
_OPTIONAL = {"containers": list}
"""The keys that the fragment has only if the option `native-sidecar` is allowed."""
_MODES = {"explicit": [PROXY], "transparent": [INIT, PROXY]}
_VOLUMES = "sluice-"
"""The prefix of the names of Sluice's volumes: a pod's author would not choose such a name by
accident."""


def complaints(tree: Any) -> list[str]:
    """Return every fault of the parsed fragment; empty if it is valid."""
    if not isinstance(tree, dict):
        return ["must be a mapping of keys to values"]
    known = _KEYS | _OPTIONAL
    found = [f"`{key}` is not a key of the fragment" for key in tree if key not in known]
    for key, kind in known.items():
        if key not in tree and key in _OPTIONAL:
            continue
        if key not in tree:
            found.append(f"`{key}` is missing")
        elif not isinstance(tree[key], kind):
            found.append(f"`{key}` must be a {_NAMES[kind]}")
    if found:
        # The values can't be judged before each key is there with its type.
        return found
    return [
        *_mode(tree["mode"], tree["initContainers"]),
        *_ordinary(tree.get("containers", []), tree["options"]),
        *_containers(tree),
        *_named(tree["volumes"], "volumes"),
        *_volumes(tree["volumes"]),
        *_named(tree["environment"], "environment"),
        *_options(tree["options"]),
    ]


_NAMES = {str: "text", list: "list", dict: "mapping"}


def _mode(mode: str, containers: list[Any]) -> Iterator[str]:
    names = [each.get("name") for each in containers if isinstance(each, dict)]
    if mode not in _MODES:
        yield f"`mode` is `{mode}`, not one of {', '.join(_MODES)}"
    elif names != _MODES[mode]:
        yield f"`initContainers` of mode `{mode}` must be {', '.join(_MODES[mode])}, in this order"


def _ordinary(containers: list[Any], options: list[Any]) -> Iterator[str]:
    names = [each.get("name") if isinstance(each, dict) else None for each in containers]
    wanted = [PROXY] if NATIVE in options else []
    if names != wanted:
        yield f"`containers` must be {', '.join(wanted) or 'absent'}, as `{NATIVE}` is " + (
            "one of `options`" if wanted else "not one of `options`"
        )


def _containers(tree: dict[str, Any]) -> Iterator[str]:
    reserved = tree["reserved"]
    for key in ("user", "group"):
        value = reserved.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            yield f"`reserved.{key}` must be a number from 1"
    volumes = [each.get("name") for each in tree["volumes"] if isinstance(each, dict)]
    for kind in ("initContainers", "containers"):
        for container in tree.get(kind, []):
            if isinstance(container, dict) and container.get("name") in OWN:
                yield from _restart_policy(container, kind)
                yield from _container(container, volumes, reserved.get("user"))


def _restart_policy(container: dict[str, Any], kind: str) -> Iterator[str]:
    if kind == "containers" and "restartPolicy" in container:
        yield f"`{PROXY}` in `containers` must have no `restartPolicy`: the pod's counts there"
    native = container["name"] == PROXY and kind == "initContainers"
    if native and container.get("restartPolicy") != "Always":
        yield f"`{PROXY}` must have `restartPolicy: Always`: it is a native sidecar"


def _container(container: dict[str, Any], volumes: list[Any], user: object) -> Iterator[str]:
    name = container["name"]
    if not isinstance(container.get("image"), str) or not container["image"]:
        yield f"`{name}` has no `image`"
    context = container.get("securityContext")
    if name == PROXY and (not isinstance(context, dict) or context.get("runAsUser") != user):
        yield f"`{name}` must run as the user in `reserved.user`"
    for part in ("requests", "limits"):
        resources = container.get("resources")
        amounts = resources.get(part) if isinstance(resources, dict) else None
        for key, value in amounts.items() if isinstance(amounts, dict) else ():
            yield from _quantity(value, f"{name}.resources.{part}.{key}")
    yield from _named(container.get("env", []), f"{name}.env")
    mounts = container.get("volumeMounts", [])
    if not isinstance(mounts, list):
        yield f"`{name}.volumeMounts` must be a list"
        return
    for mount in mounts:
        volume = mount.get("name") if isinstance(mount, dict) else mount
        if volume not in volumes:
            yield f"`{name}` mounts `{volume}`, which is not one of `volumes`"


def _quantity(value: object, where: str) -> Iterator[str]:
    # The policies compare texts: a sidecar that the API server stored must still equal ours.
    stored = canonical(value) if isinstance(value, str) else None
    if stored is None:
        yield f"`{where}` is `{value}`, not the text of a quantity, such as `64Mi`"
    elif stored != value:
        yield f"`{where}` is `{value}`: write `{stored}`, as the API server stores it"


def _named(items: Any, where: str) -> Iterator[str]:
    if not isinstance(items, list):
        yield f"`{where}` must be a list"
        return
    seen: set[str] = set()
    for item in items:
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not name:
            yield f"each item of `{where}` must be a mapping with a `name`"
        elif name in seen:
            yield f"`{where}` names `{name}` twice"
        else:
            seen.add(name)


def _volumes(volumes: list[Any]) -> Iterator[str]:
    for volume in volumes:
        name = volume.get("name") if isinstance(volume, dict) else None
        if isinstance(name, str) and not name.startswith(_VOLUMES):
            yield f"volume `{name}` must have a name that begins with `{_VOLUMES}`"
        scratch = volume.get("emptyDir") if isinstance(volume, dict) else None
        if isinstance(scratch, dict) and "sizeLimit" in scratch:
            yield from _quantity(scratch["sizeLimit"], f"{name}.emptyDir.sizeLimit")


def _options(options: list[Any]) -> Iterator[str]:
    for option in options:
        if not isinstance(option, str) or option not in OPTIONS:
            yield f"`options` lists `{option}`, which is not one of {', '.join(sorted(OPTIONS))}"


PLACEHOLDER = "{serviceAccountName}"
PACKAGED = Path(__file__).with_name("injection.yaml")
"""The fragment that is part of the wheel: the chart's rendering with default values. A test
compares the two."""
KEY = "injection.yaml"
"""The fragment's key in its ConfigMap."""
MAX_BYTES = 262_144
MAX_ACCOUNTS = 1024
"""The most copies of the fragment that are cached, one for each ServiceAccount."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """The parts that are injected into a pod: containers, volumes, and environment variables."""

    mode: str
    """The way in which connections reach the sidecar. `explicit`: environment variables tell the
    containers of the proxy. `transparent`: their connections are redirected to it."""
    init_containers: tuple[Json, ...]
    """Sluice's init containers in their order: `sluice-init` in transparent mode, and
    `sluice-proxy` unless that is an ordinary container."""
    volumes: tuple[Json, ...]
    environment: tuple[Json, ...]
    """The variables that the containers of the pod's author get, unless they set the variable
    themselves."""
    options: frozenset[str]
    """The options that a pod may set by annotations `config.sluice/<option>`."""
    user: int
    """The user id of the sidecar. No other container may run as this user."""
    group: int
    version: str
    digest: str
    """The SHA-256 of the fragment's content; it does not depend on the YAML's notation."""
    containers: tuple[Json, ...] = ()
    """`sluice-proxy` as an ordinary container, for pods whose option `native-sidecar` is `false`.
    Empty if the option is not allowed."""
    _filled: dict[tuple[str, bool], Fragment] = field(
        default_factory=dict, compare=False, repr=False
    )

    def for_account(self, name: str, *, native: bool = True) -> Fragment:
        """Return the fragment with the name of the pod's ServiceAccount filled in. It holds
        `sluice-proxy` only once: as an init container if `native`, else as an ordinary
        container."""
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
        """The names of Sluice's containers, in the order in which they start."""
        return tuple(each["name"] for each in (*self.init_containers, *self.containers))

    @property
    def volume_names(self) -> frozenset[str]:
        """The names of Sluice's volumes, which only Sluice's containers may mount."""
        return frozenset(volume["name"] for volume in self.volumes)


def read(text: str, source: str, version: str = __version__) -> Fragment:
    """Read the fragment from `text`: the fragment itself, or the manifest of a ConfigMap with the
    key `injection.yaml`. Raises `SettingsError` with every complaint; `source` names the text in
    them."""
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
    """Return the fragment that is part of the wheel."""
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
