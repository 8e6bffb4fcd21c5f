"""The ValidatingAdmissionPolicy refuses exactly the pods that the rules in Python refuse, with the
same words: on the pods of the table, and on generated ones."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deploy.kubernetes.admission import template
from deploy.kubernetes.admission.injection import review
from deploy.kubernetes.admission.refusing.rules import RULES, refusals
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import Namespace, Outcome
from tests.deploy.kubernetes.admission.governed_pods import (
    ENABLED,
    OPTIONAL,
    RESTRICTED,
    Pod,
    changed,
    governed_pod,
    plain_pod,
)
from tests.deploy.kubernetes.admission.refused_pods import (
    ADMITTED,
    ADMITTED_IF_OPTIONS,
    REFUSED,
    REFUSED_IF_OPTIONS,
    REFUSED_IF_TRANSPARENT,
    placed,
)
from tests.kubernetes.cel_policy import ValidatingPolicy
from tests.kubernetes.rendered import one, rendered
from tests.support.properties import examples

OPTIONS = "injection.options={log-level,skip-outbound-ports,skip-subnets}"
MODES = {
    "explicit": ("injection.mode=explicit",),
    "transparent": ("injection.mode=transparent", OPTIONS),
    "secret": ("identity=secret",),
    "ordinary": ("injection.options={native-sidecar}", "injection.quitEndpoint=true"),
}
"""The chart's values that change what is injected."""
NAMESPACES = [ENABLED, OPTIONAL, RESTRICTED, Namespace("other", {})]


@functools.cache
def fragment(mode: str) -> Fragment:
    """What the chart injects in this mode."""
    manifest = one(rendered(*MODES[mode], only="injection-configmap.yaml"), "ConfigMap")
    return template.read(manifest["data"][template.KEY], mode)


policy = functools.cache(lambda mode: ValidatingPolicy(*MODES[mode]))


def agree(
    mode: str,
    pod: Pod,
    namespace: Namespace = ENABLED,
    operation: Any = "CREATE",
    old: Pod | None = None,
) -> list[str]:
    """The rules that both say are broken."""
    found = refusals(pod, fragment(mode), namespace, operation, old)
    said = policy(mode).messages(pod, namespace, operation, old)
    assert list(map(_comparable, said)) == [_comparable(str(each)) for each in found]
    return [each.rule for each in found]


def _comparable(message: str) -> str:
    # Which of several options is named is up to the order of a map, which CEL can't sort.
    return re.sub(r"^annotation `[^`]*` is not allowed", "an annotation is not allowed", message)


@pytest.mark.deep(stands_in="test_a_quantity_that_the_api_server_rewrites_is_not_rendered")
@pytest.mark.parametrize("mode", MODES)
def test_every_rule_has_its_validation(mode: str) -> None:
    messages = [each["messageExpression"] for each in policy(mode).spec["validations"]]
    rules = [text.rpartition("(")[2].removesuffix(')"') for text in messages]
    # The values of this mode allow options, those of the others allow none.
    only_transparent = {"restricted", "user-unset", "root", "escalation", "capability-kept"}
    absent = set() if mode == "transparent" else only_transparent
    if mode not in ("transparent", "ordinary"):
        absent = absent | {"option-value"}
    assert rules == [rule.name for rule in RULES if rule.name not in absent]


@pytest.mark.deep(stands_in="test_webhook_and_policy_agree_on_updates")
@pytest.mark.parametrize("mode", MODES)
def test_webhook_and_policy_agree_on_the_table_of_changes(mode: str) -> None:
    """Which rule refuses what is tested with the rules themselves."""
    pod = governed_pod(fragment(mode))
    found = [
        agree(mode, changed(pod, placed(changes, mode)))
        for changes in [
            *ADMITTED,
            *ADMITTED_IF_OPTIONS,
            *(changes for _, changes in REFUSED),
            *(changes for _, changes in REFUSED_IF_TRANSPARENT),
            *(changes for _, changes in REFUSED_IF_OPTIONS),
        ]
    ]
    assert sum(map(bool, found)) >= len(REFUSED) - 3, "the policy hardly refuses anything"


@pytest.mark.parametrize("mode", MODES)
def test_webhook_and_policy_agree_on_missing_and_misplaced_containers(mode: str) -> None:
    pod = governed_pod(fragment(mode), initContainers=[{"name": "first", "image": "a"}])
    names = pod["spec"]["initContainers"]
    for count in range(len(names)):
        moved = changed(pod, {"/spec/initContainers": [*names[count:], *names[:count]]})
        cut = changed(pod, {"/spec/initContainers": names[count:]})
        assert bool(agree(mode, moved)) == bool(count) or mode == "transparent"
        agree(mode, cut)
    assert "sidecar-missing" in agree(mode, plain_pod())


@pytest.mark.parametrize("mode", MODES)
def test_webhook_and_policy_agree_on_updates(mode: str) -> None:
    pod = governed_pod(fragment(mode))
    debug = changed(pod, {"/spec/ephemeralContainers/-": {"name": "debug", "image": "a"}})
    assert agree(mode, debug, ENABLED, "UPDATE", pod) == ["ephemeral"]
    finalizer = changed(plain_pod(), {"/metadata/finalizers": ["a"]})
    assert agree(mode, plain_pod(), ENABLED, "UPDATE", finalizer) == []
    label = changed(pod, {"/metadata/labels/sluice~1inject": "disabled"})
    assert "names" in agree(mode, label, OPTIONAL, "UPDATE", pod)


@pytest.mark.parametrize(
    ("containers", "first", "variables", "volumes"),
    [(198, 1, 0, 0), (198, 2, 0, 0), (199, 1, 0, 0), (0, 0, 1001, 0), (0, 0, 0, 1001)],
)
def test_webhook_and_policy_admit_pods_of_the_same_sizes(
    containers: int, first: int, variables: int, volumes: int
) -> None:
    """The webhook refuses some pods before it has made a patch for the rules to judge."""
    pod = plain_pod()
    held = pod["spec"]
    agent = held["containers"][0]
    held["containers"] += [{**agent, "name": f"c{each}"} for each in range(containers)]
    held["initContainers"] = [{**agent, "name": f"i{each}"} for each in range(first)]
    held["volumes"] = [{"name": f"v{each}"} for each in range(volumes)]
    agent["env"] = [{"name": f"V{each}"} for each in range(variables)]
    verdict = review(pod, ENABLED, fragment("explicit"))
    stored = governed_pod(fragment("explicit"), **held)
    assert bool(agree("explicit", stored)) is (verdict.outcome is Outcome.refused)


EVERYTHING: list[tuple[str, Any]] = sorted(
    (item for changes in [*ADMITTED, *ADMITTED_IF_OPTIONS, *(each for _, each in [
        *REFUSED, *REFUSED_IF_TRANSPARENT, *REFUSED_IF_OPTIONS])]
     for item in changes.items()), key=str
)  # fmt: skip
numbers = st.sampled_from([0, 1000, 20102, 8710, 8713])
flags = st.booleans()
contexts = st.fixed_dictionaries(
    {},
    optional={
        "runAsUser": numbers,
        "runAsGroup": numbers,
        "allowPrivilegeEscalation": flags,
        "privileged": flags,
        "procMount": st.sampled_from(["Default", "Unmasked"]),
        "windowsOptions": st.fixed_dictionaries({}, optional={"hostProcess": flags}),
        "capabilities": st.fixed_dictionaries(
            {},
            optional={
                "add": st.lists(
                    st.sampled_from(
                        ["ALL", "cap_bpf", "NET_RAW\n", "KILL", "NET_ADMIN2", "setuid"]
                    ),
                    max_size=2,
                ),
                "drop": st.lists(st.sampled_from(["ALL", "all", "SETUID"]), max_size=2),
            },
        ),
    },
)
containers = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "sluice-init", "sluice-proxy"]), "image": st.just("a")},
    optional={
        "securityContext": contexts,
        "ports": st.lists(
            st.fixed_dictionaries({"containerPort": numbers}, optional={"hostPort": numbers}),
            max_size=2,
        ),
        "volumeMounts": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["mine", "sluice-data"]), "mountPath": st.just("/t")}
            ),
            max_size=2,
        ),
    },
)
namespaces = st.sampled_from(NAMESPACES)
forms = st.sampled_from(["true", "false", "False", ""]).map(
    lambda value: ("/metadata/annotations/config.sluice~1native-sidecar", value)
)


@pytest.mark.deep(stands_in="test_webhook_and_policy_agree_on_updates")
@pytest.mark.parametrize("mode", MODES)
@given(
    changes=st.lists(st.sampled_from(EVERYTHING) | forms, max_size=4),
    more=st.lists(containers, max_size=2),
    first=st.lists(containers, max_size=1),
    namespace=namespaces,
    old=st.lists(st.sampled_from(EVERYTHING), max_size=2) | st.none(),
)
@examples(300)
def test_webhook_and_policy_agree_on_any_pod(
    mode: str,
    changes: list[tuple[str, Any]],
    more: list[Pod],
    first: list[Pod],
    namespace: Namespace,
    old: list[tuple[str, Any]] | None,
) -> None:
    pod = governed_pod(fragment(mode))
    before = None if old is None else _with(pod, old, mode)
    pod = _with(pod, changes, mode)
    pod["spec"]["containers"] += more
    pod["spec"]["initContainers"][0:0] = first
    agree(mode, pod, namespace, "CREATE" if before is None else "UPDATE", before)


def _with(pod: Pod, changes: list[tuple[str, Any]], mode: str) -> Pod:
    for pointer, value in changes:
        try:
            pod = changed(pod, placed({pointer: value}, mode))
        except (AttributeError, IndexError, TypeError, ValueError):
            continue  # an earlier change put something else where this one leads
    return pod


def paths(value: Any, here: str = "") -> list[str]:
    """A JSON pointer to everything inside `value`."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, each in inside:
        pointer = f"{here}/{key}"
        found.append(pointer)
        if isinstance(each, dict | list):
            found += paths(each, pointer)
    return found


def holder_of(pod: Pod, pointer: str) -> tuple[Any, Any]:
    """The object or list that holds what `pointer` leads to, and its key there."""
    *parents, last = [int(each) if each.isdigit() else each for each in pointer.split("/")[1:]]
    holder: Any = pod
    for parent in parents:
        holder = holder[parent]
    return holder, last


def _typed(have: Any, value: Any) -> bool:
    """Whether the API server would take `value` for `have`, as far as the types go."""
    if isinstance(have, list) and isinstance(value, list) and have and value:
        return type(have[0]) is type(value[0])
    return type(have) is type(value)


@pytest.mark.deep(stands_in="test_a_quantity_that_the_api_server_rewrites_is_not_rendered")
@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
@examples(150)
def test_any_change_of_our_own_containers_is_refused(mode: str, data: st.DataObject) -> None:
    pod = governed_pod(fragment(mode))
    own = {"initContainers": "/", "containers": "/0", "volumes": "/"}
    if mode != "ordinary":
        del own["containers"]
    ours = [
        f"/spec/{field}{pointer}"
        for field, begin in own.items()
        for pointer in paths(pod["spec"][field])
        # AlwaysPullImages sets the one; the other, a whole container or volume, has a name.
        if pointer.startswith(begin)
        and not pointer.endswith("/imagePullPolicy")
        and pointer.count("/") > 1
    ]
    pointer = data.draw(st.sampled_from(ours))
    value = data.draw(st.sampled_from(["x", "", 7, 0, True, False, [], {}, {"name": "x"}, ["x"]]))
    holder, key = holder_of(pod, pointer)
    match data.draw(st.sampled_from(["another value", "another field", "no field"])):
        case "another value":
            assume(_typed(holder[key], value) and holder[key] != value)
            holder[key] = value
        case "another field":
            # A LimitRange adds limits for resources that we don't set.
            assume(isinstance(holder, dict) and "/resources/" not in pointer)
            holder[f"x{key}"] = value
        case _:
            assume(isinstance(holder, dict) and key != "name")
            del holder[key]
    assert agree(mode, pod)


def test_a_quantity_that_the_api_server_rewrites_is_not_rendered() -> None:
    for quantity in ("1024Mi", "0.5", "1000m", "0"):
        with pytest.raises(ValueError, match="is not how Kubernetes writes this quantity"):
            rendered(f"injection.resources.limits.memory={quantity}", only="validating-policy.yaml")
