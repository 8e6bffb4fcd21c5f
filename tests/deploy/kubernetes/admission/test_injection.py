"""What holds for the injection of any pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.admission.injection import apply, review
from deploy.kubernetes.admission.vocabulary import Namespace, Outcome, Verdict
from tests.deploy.kubernetes.admission.goldens import VALUES, fragment

ENABLED = Namespace("agents", {"sluice/inject": "enabled"})
NAMES = ["agent", "sluice", "proxy", "sluice-proxy-2", "a", "b", "c", "istio-proxy"]
VARIABLES = ["HTTP_PROXY", "https_proxy", "no_proxy", "PATH", "Ünï"]
ALLOWED = {
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
"""A security context that every mode admits."""
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 70000)
    | st.text(max_size=4)
    | st.just("sluice-proxy"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def containers(draw: st.DrawFn, names: list[str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "image": draw(st.sampled_from(["a", "b:1"])), **draw(details())}
        for name in names
    ]


@st.composite
def details(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"securityContext": ALLOWED}
    environment = st.lists(
        st.builds(lambda name: {"name": name, "value": "own"}, st.sampled_from(VARIABLES)),
        max_size=4,
    )
    if draw(st.booleans()):
        found["env"] = draw(st.none() | environment)
    if draw(st.booleans()):
        found["resources"] = {"limits": {"cpu": "1"}}
    return found


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    first = draw(st.integers(0, len(names) - 1))
    spec: dict[str, Any] = {"containers": draw(containers(names[first:]))}
    if first or draw(st.booleans()):
        spec["initContainers"] = draw(containers(names[:first]))
    if draw(st.booleans()):
        spec["volumes"] = draw(
            st.none() | st.just([]) | st.just([{"name": "data", "emptyDir": {}}])
        )
    if draw(st.booleans()):
        spec["serviceAccountName"] = draw(st.sampled_from(["", "loans", "a.b-c"]))
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    if draw(st.booleans()):
        keys = st.sampled_from(["a/b", "~", "sluice/status", "x"])
        annotations = draw(st.none() | st.dictionaries(keys, st.text(max_size=3), max_size=3))
        pod["metadata"] = draw(st.sampled_from([None, {}, {"annotations": annotations}]))
    return pod


def names(listed: Sequence[Mapping[str, Any]] | None) -> list[str]:
    return [each["name"] for each in listed or []]


def bare(listed: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [{key: each[key] for key in each if key != "env"} for each in listed or []]


@pytest.mark.deep(
    stands_in="test_a_pod_that_leaves_out_parts_gets_the_sidecar_and_keeps_the_others"
)
@given(pods(), st.sampled_from(sorted(VALUES)))
def test_a_pod_gets_the_sidecar_and_keeps_what_it_has(pod: dict[str, Any], settings: str) -> None:
    check_kept(pod, settings)


@pytest.mark.parametrize("settings", ["explicit", "ordinary", "transparent-options"])
def test_a_pod_that_leaves_out_parts_gets_the_sidecar_and_keeps_the_others(settings: str) -> None:
    variables = [{"name": "PATH", "value": "own"}, {"name": "https_proxy", "value": "own"}]
    first = {"name": "first", "image": "b:1", "securityContext": ALLOWED}
    whole = {"name": "agent", "image": "a", "securityContext": ALLOWED}
    volumes = [{"name": "data", "emptyDir": {}}]
    annotations = {"a/b": "x", "~": "y", "sluice/status": "z"}
    specs: list[dict[str, Any]] = [
        {"containers": [whole]},
        {"containers": [{**whole, "env": None}], "initContainers": None, "volumes": None},
        {"containers": [{**whole, "env": []}], "initContainers": [], "volumes": []},
        {
            "containers": [{**whole, "env": variables}, {**first, "name": "sluice"}],
            "initContainers": [first],
            "volumes": volumes,
            "serviceAccountName": "loans",
        },
    ]
    for spec in specs:
        check_kept({"apiVersion": "v1", "kind": "Pod", "spec": spec}, settings)
        for metadata in (None, {}, {"annotations": None}, {"annotations": annotations}):
            check_kept({"metadata": metadata, "spec": spec}, settings)


def check_kept(pod: dict[str, Any], settings: str) -> None:
    """The pod gets what the fragment has, and everything else of it stays."""
    chosen = fragment(settings)
    own = names(chosen.init_containers)
    before = deepcopy(pod)
    verdict = review(pod, ENABLED, chosen)
    assert pod == before, "the given pod was changed"
    assert verdict.outcome is Outcome.injected, verdict.message
    assert {each["op"] for each in verdict.patch} == {"add"}
    after = jsonpatch.apply_patch(pod, verdict.patch)
    assert after == apply(pod, verdict.patch)

    spec = after["spec"]
    assert names(spec["initContainers"])[: len(own)] == own
    others = spec["initContainers"][len(own) :]
    assert bare(others) == bare(pod["spec"].get("initContainers"))
    assert bare(spec["containers"]) == bare(pod["spec"]["containers"])
    had = pod["spec"].get("volumes") or []
    assert spec["volumes"][: len(had)] == had
    assert set(names(spec["volumes"])) == set(names(had)) | chosen.volume_names
    rest = {"initContainers", "containers", "volumes"}
    assert {key: spec[key] for key in spec if key not in rest} == {
        key: pod["spec"][key] for key in pod["spec"] if key not in rest
    }
    for was, now in zip(
        [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]],
        [*others, *spec["containers"]],
        strict=True,
    ):
        own_variables = was.get("env") or []
        added = (now.get("env") or [])[len(own_variables) :]
        assert (now.get("env") or [])[: len(own_variables)] == own_variables
        assert added == [
            each for each in chosen.environment if each["name"] not in names(own_variables)
        ]
    again = review(after, ENABLED, chosen)
    assert (again.outcome, again.patch) == (Outcome.unchanged, ())


@pytest.mark.parametrize("settings", ["explicit", "transparent"])
def test_our_containers_are_moved_back_to_the_front(settings: str) -> None:
    chosen = fragment(settings)
    own = names(chosen.init_containers)
    first, *others = (
        {"name": name, "image": "a", "securityContext": ALLOWED}
        for name in ("a", "late-1", "late-2")
    )
    pod = {"spec": {"containers": [first]}}
    injected = apply(pod, review(pod, ENABLED, chosen).patch)
    present = injected["spec"]["initContainers"]
    injected["spec"] |= {"initContainers": [others[0], *reversed(present), others[1]]}
    verdict = review(injected, ENABLED, chosen)
    assert "move" in {each["op"] for each in verdict.patch}
    after = jsonpatch.apply_patch(injected, verdict.patch)["spec"]["initContainers"]
    assert names(after) == [*own, "late-1", "late-2"]
    assert after[: len(own)] == present


SPEC_FIELDS = (
    "containers", "initContainers", "ephemeralContainers", "volumes", "securityContext",
    "hostAliases", "os", "nodeSelector", "dnsConfig", "serviceAccountName",
)  # fmt: skip
ODD: list[Any] = [None, True, 7, "x", [], {}, [None], [[]], [{}], [{"name": 7}], {"a": None}]


@pytest.mark.parametrize("settings", ["explicit", "transparent-options"])
def test_an_odd_pod_gets_a_verdict(settings: str) -> None:
    check_odd({"spec": value} for value in ODD)
    whole = {"name": "a", "image": "a"}
    check_odd(({"metadata": value, "spec": {"containers": [whole]}} for value in ODD), settings)
    for field in SPEC_FIELDS:
        check_odd(({"spec": {"containers": [whole], field: value}} for value in ODD), settings)
    for field in ("name", "env", "securityContext", "resources", "volumeMounts"):
        check_odd(({"spec": {"containers": [whole | {field: value}]}} for value in ODD), settings)
    for field in ("annotations", "labels"):
        pods_ = ({"metadata": {field: value}, "spec": {"containers": [whole]}} for value in ODD)
        check_odd(pods_, settings)


def check_odd(tried: Iterable[dict[str, Any]], settings: str = "explicit") -> None:
    for pod in tried:
        before = deepcopy(pod)
        verdict = review(pod, ENABLED, fragment(settings))
        assert (verdict.outcome is Outcome.refused) == bool(verdict.refusals), pod
        assert pod == before
        if verdict.outcome is Outcome.injected:
            after = jsonpatch.apply_patch(pod, verdict.patch)
            assert review(after, ENABLED, fragment(settings)).outcome is Outcome.unchanged


@pytest.mark.deep(stands_in="test_our_containers_are_moved_back_to_the_front")
@given(st.data(), st.sampled_from(["explicit", "transparent"]))
def test_our_containers_return_to_the_front(data: st.DataObject, settings: str) -> None:
    chosen = fragment(settings)
    own = names(chosen.init_containers)
    pod = data.draw(pods())
    injected = apply(pod, review(pod, ENABLED, chosen).patch)
    late = data.draw(containers(["late-1", "late-2"]))
    present = injected["spec"]["initContainers"]
    injected["spec"] = {
        **injected["spec"],
        "initContainers": data.draw(st.permutations([*present, *late])),
    }
    foreign = [each for each in injected["spec"]["initContainers"] if each["name"] not in own]
    verdict = review(injected, ENABLED, chosen)
    assert {each["op"] for each in verdict.patch} <= {"add", "move"}
    after = jsonpatch.apply_patch(injected, verdict.patch)["spec"]["initContainers"]
    assert names(after) == own + names(foreign), "others keep their order, and none is lost"
    assert after[: len(own)] == [
        next(each for each in present if each["name"] == name) for name in own
    ]


@pytest.mark.deep(stands_in="test_an_odd_pod_gets_a_verdict")
@given(st.data(), pods())
def test_any_json_gets_a_verdict(data: st.DataObject, pod: dict[str, Any]) -> None:
    """Whatever stands anywhere in a pod, the answer is a verdict and never an exception."""
    for _ in range(data.draw(st.integers(1, 3))):
        node: Any = pod
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            extra = ["hostAliases", "securityContext", "os", "nodeSelector", "ephemeralContainers"]
            key = data.draw(
                st.sampled_from(keys + (extra if isinstance(node, dict) else []) or [0])
            )
            inner = node.get(key) if isinstance(node, dict) else (node[key] if node else None)
            if not isinstance(inner, dict | list) or data.draw(st.booleans()):
                break
            node = inner
        if isinstance(node, dict) or node:
            node[key] = data.draw(JSON)
    before = deepcopy(pod)
    for name in ("explicit", "transparent-options"):
        verdict = review(pod, ENABLED, fragment(name))
        assert isinstance(verdict, Verdict)
        assert (verdict.outcome is Outcome.refused) == bool(verdict.refusals)
        assert pod == before
        if verdict.outcome is Outcome.injected:
            after = jsonpatch.apply_patch(pod, verdict.patch)
            assert review(after, ENABLED, fragment(name)).outcome is Outcome.unchanged


def test_warnings_name_containers_that_use_another_proxy() -> None:
    pod = {
        "spec": {
            "containers": [
                {"name": "a", "env": [{"name": "HTTP_PROXY", "value": "http://other:1"}]},
                {"name": "b"},
            ]
        }
    }
    assert review(pod, ENABLED, fragment("explicit")).warnings == (
        "container `a` sets `HTTP_PROXY` and passes the sidecar by",
    )


def test_a_hostile_name_stays_on_one_short_line() -> None:
    hostile = "x\n\x1b[31m" + "y" * 100_000
    variable = {"name": "HTTP_PROXY", "value": "http://other:1"}
    agent = {"name": hostile, "securityContext": {"privileged": True}, "env": [variable]}
    refused = review({"spec": {"containers": [agent]}}, ENABLED, fragment("explicit"))
    assert refused.message.isprintable()
    assert len(refused.message) < 500
    agent["securityContext"] = {}
    (warning,) = review({"spec": {"containers": [agent]}}, ENABLED, fragment("explicit")).warnings
    assert warning.isprintable()
    assert len(warning) < 200


@pytest.mark.parametrize("count", [1, 40, 200])
def test_the_size_of_the_patch_depends_on_the_containers_alone(count: int) -> None:
    pod = {"spec": {"containers": [{"name": f"c{each}"} for each in range(count)]}}
    verdict = review(pod, ENABLED, fragment("explicit"))
    # The list of init containers, that of volumes, and two levels of annotations.
    assert len(verdict.patch) == count + 5
    # A pod at the limit passes a second review too, although ours is one more.
    again = review(apply(pod, verdict.patch), ENABLED, fragment("explicit"))
    assert again.outcome is Outcome.unchanged


@pytest.mark.parametrize("excess", [0, 1])
def test_a_pod_with_too_many_containers_is_refused(excess: int) -> None:
    chosen = fragment("explicit")
    # Only Sluice's containers don't count: one of the author's with the name of a volume does.
    listed = [*(f"n{each}" for each in range(199 + excess)), chosen.volumes[0]["name"]]
    verdict = review({"spec": {"containers": [{"name": each} for each in listed]}}, ENABLED, chosen)
    assert [each.rule for each in verdict.refusals] == ["malformed"] * excess


@pytest.mark.parametrize("key", ["env", "volumeMounts", "volumes"])
def test_other_lists_may_be_as_long_as_a_body_allows(key: str) -> None:
    """The API server and the policy `sluice-refuse` admit such pods."""
    items = [{"name": f"n{each}"} for each in range(60_000)]
    agent = {"name": "agent"} if key == "volumes" else {"name": "agent", key: items}
    pod = {"spec": {"containers": [agent], **({key: items} if key == "volumes" else {})}}
    verdict = review(pod, ENABLED, fragment("explicit"))
    assert verdict.outcome is Outcome.injected
    again = review(apply(pod, verdict.patch), ENABLED, fragment("explicit"))
    assert again.outcome is Outcome.unchanged
