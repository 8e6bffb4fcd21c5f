"""What a fragment must look like. Knows its keys and returns all complaints; builds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from control_api.admission.notation.quantities import canonical
from control_api.admission.options import NATIVE, OPTIONS
from control_api.admission.vocabulary import INIT, OWN, PROXY

_KEYS = {
    "mode": str,
    "initContainers": list,
    "volumes": list,
    "environment": list,
    "options": list,
    "reserved": dict,
}
_OPTIONAL = {"containers": list}
"""There if the option `native-sidecar` is allowed."""
_MODES = {"explicit": [PROXY], "transparent": [INIT, PROXY]}
_VOLUMES = "sluice-"
"""Our volumes have names that a pod's author would not choose by accident."""


def complaints(tree: Any) -> list[str]:
    """Every fault of the parsed fragment; empty if it is valid."""
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
        # What the keys hold can't be judged before each is there with its type.
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
