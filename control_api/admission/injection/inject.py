"""Decides about one pod that is being created: the patch that gives it the sidecar, or why there is
none. Pure; `refusals` judges the pod as the patch leaves it.

Only adds what is missing, by name. Whether something with our name is ours is not asked here: if it
differs in anything, the rules refuse the pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from control_api.admission.injection.obstacles import obstacles
from control_api.admission.injection.patch import Patch, Path
from control_api.admission.refusals import refusals
from control_api.admission.refusing.pod_view import form_of, inject_label
from control_api.admission.template import Fragment
from control_api.admission.verdict import Outcome, SkipReason, Verdict
from control_api.admission.vocabulary import LABEL, STATUS, Governance, Json, Namespace, Refusal
from policies.definitions.definition import shown

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")


def review(pod: dict[str, Any], namespace: Namespace, fragment: Fragment) -> Verdict:
    """The verdict about `pod`, which is being created in `namespace`."""
    if namespace.governance is Governance.NONE:
        return _skipped(
            SkipReason.not_governed,
            f"namespace `{namespace.name}` has no label `{LABEL}` that asks for injection",
        )
    found = obstacles(pod, fragment)
    if found:
        return _refused(found)
    if namespace.governance is Governance.OPTIONAL and inject_label(pod) == "disabled":
        found = refusals(pod, fragment, namespace, "CREATE")
        return _refused(found) if found else _skipped(SkipReason.opted_out, f"`{LABEL}: disabled`")
    filled = form_of(pod, fragment)
    patch = Patch(pod)
    _inject(patch, filled)
    found = refusals(patch.document, fragment, namespace, "CREATE")
    if found:
        return _refused(found)
    return Verdict(
        Outcome.injected if patch.operations else Outcome.unchanged,
        tuple(patch.operations),
        warnings=tuple(_warnings(patch.document["spec"], filled)),
    )


def status(fragment: Fragment) -> str:
    """The annotation `sluice/status`: which version injected what."""
    written = {
        "version": fragment.version,
        "mode": fragment.mode,
        "fragment": f"sha256:{fragment.digest[:16]}",
    }
    return json.dumps(written, separators=(",", ":"))


def _inject(patch: Patch, fragment: Fragment) -> None:
    spec = patch.document["spec"]
    _place(patch, "initContainers", fragment.init_containers)
    _place(patch, "containers", fragment.containers)
    _append(patch, ("spec", "volumes"), spec.get("volumes"), fragment.volumes)
    for kind in ("initContainers", "containers"):
        for place, container in enumerate(patch.document["spec"].get(kind) or []):
            if container["name"] not in fragment.own_names:
                path = ("spec", kind, place, "env")
                _append(patch, path, container.get("env"), fragment.environment)
    _annotate(patch, status(fragment))


def _place(patch: Patch, kind: str, wanted: tuple[Json, ...]) -> None:
    """Put our containers before all others, which another webhook may have put first: what starts
    before ours is not governed."""
    # `null` in a manifest counts as absent. A missing list is added with what goes into it.
    if wanted and patch.document["spec"].get(kind) is None:
        patch.add(("spec", kind), list(wanted))
        return
    for place, container in enumerate(wanted):
        have = [each["name"] for each in patch.document["spec"][kind]]
        target = ("spec", kind, place)
        if container["name"] not in have:
            patch.add(target, container)
        elif have[place] != container["name"]:
            patch.move(("spec", kind, have.index(container["name"])), target)


def _append(patch: Patch, path: Path, have: list[Json] | None, wanted: tuple[Json, ...]) -> None:
    """Add to a list what it has no item for by name. Never overwrites an item."""
    names = {each.get("name") for each in have or []}
    missing = [each for each in wanted if each["name"] not in names]
    if missing and have is None:
        patch.add(path, missing)
    elif missing:
        patch.append(path, missing)


def _annotate(patch: Patch, text: str) -> None:
    metadata = patch.document.get("metadata")
    if metadata is None:
        patch.add(("metadata",), {})
    annotations = (metadata or {}).get("annotations")
    if annotations is None:
        patch.add(("metadata", "annotations"), {})
    # Whatever stands there is not believed, only replaced: anyone can write it.
    if (annotations or {}).get(STATUS) != text:
        patch.add(("metadata", "annotations", STATUS), text)


def _warnings(spec: Json, fragment: Fragment) -> Iterator[str]:
    """Containers that were told of another proxy by their author."""
    wanted = {each["name"]: each for each in fragment.environment if each["name"] in _PROXIES}
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        for variable in container.get("env") or []:
            name = variable.get("name")
            if isinstance(name, str) and name in wanted and variable != wanted[name]:
                told = shown(container["name"])
                yield f"container {told} sets `{name}` and passes the sidecar by"
                break


def _refused(found: list[Refusal]) -> Verdict:
    return Verdict(Outcome.refused, message="; ".join(map(str, found)), refusals=tuple(found))


def _skipped(reason: SkipReason, message: str) -> Verdict:
    return Verdict(Outcome.skipped, skip_reason=reason, message=message)
