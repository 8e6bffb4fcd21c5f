"""The rules by which pods are refused, each with what it refuses and what it lets pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.admission import template
from deploy.kubernetes.admission.refusing.rules import RULES, refusals
from deploy.kubernetes.admission.template import Fragment
from deploy.kubernetes.admission.vocabulary import Namespace, Operation
from tests.deploy.kubernetes.admission.goldens import fragment
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
from tests.support.properties import examples

EXPLICIT = template.packaged()
INIT = {
    "name": "sluice-init",
    "image": "sluice/sidecar:0.1.0",
    "securityContext": {"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}},
}


def transparent() -> Fragment:
    """The packaged fragment in the other mode."""
    return Fragment(
        mode="transparent",
        init_containers=(INIT, *EXPLICIT.init_containers),
        volumes=EXPLICIT.volumes,
        environment=(),
        options=frozenset({"log-level", "skip-outbound-ports", "skip-subnets"}),
        user=20102,
        group=20102,
        version=EXPLICIT.version,
        digest="0",
    )


TRANSPARENT = transparent()
FRAGMENTS = {"explicit": EXPLICIT, "transparent": TRANSPARENT}


def rules(
    pod: Pod,
    fragment: Fragment = EXPLICIT,
    namespace: Namespace = ENABLED,
    operation: Operation = "CREATE",
    old: Pod | None = None,
) -> list[str]:
    return [each.rule for each in refusals(pod, fragment, namespace, operation, old)]


@pytest.mark.parametrize("mode", FRAGMENTS)
@pytest.mark.parametrize(("rule", "changes"), REFUSED)
def test_a_change_is_refused_by_its_rule_alone(
    mode: str, rule: str, changes: dict[str, Any]
) -> None:
    fragment = FRAGMENTS[mode]
    pod = changed(governed_pod(fragment), placed(changes, mode))
    found = rules(pod, fragment)
    # A privileged container may escalate, as the API server insists; that is a rule as well.
    assert [each for each in found if each != "escalation" or rule == each] == [rule]


@pytest.mark.parametrize(("rule", "changes"), REFUSED_IF_TRANSPARENT)
def test_only_the_mode_transparent_depends_on_the_user(rule: str, changes: dict[str, Any]) -> None:
    assert rules(changed(governed_pod(TRANSPARENT), changes), TRANSPARENT) == [rule]
    assert rules(changed(governed_pod(EXPLICIT), changes), EXPLICIT) == []


@pytest.mark.parametrize("name", ["SLUICE_SKIP_SUBNETS", "KUBERNETES_SERVICE_HOST"])
def test_the_init_container_takes_no_variable_of_the_pods_author(name: str) -> None:
    added = {"/spec/initContainers/0/env": [{"name": name, "value": "10.0.0.0/8"}]}
    assert rules(changed(governed_pod(TRANSPARENT), added), TRANSPARENT) == ["sidecar-altered"]


@pytest.mark.parametrize(("rule", "changes"), REFUSED_IF_OPTIONS)
def test_an_option_has_values_of_one_form(rule: str, changes: dict[str, Any]) -> None:
    assert rules(changed(governed_pod(TRANSPARENT), changes), TRANSPARENT) == [rule]
    # Where it is not allowed at all, that is the reason.
    assert rules(changed(governed_pod(EXPLICIT), changes), EXPLICIT) == ["option"]


@pytest.mark.parametrize("changes", ADMITTED_IF_OPTIONS)
def test_an_option_that_is_allowed_can_be_set(changes: dict[str, Any]) -> None:
    assert rules(changed(governed_pod(TRANSPARENT), changes), TRANSPARENT) == []


@pytest.mark.parametrize(
    "changes",
    [each for rule, each in [*REFUSED, *REFUSED_IF_OPTIONS]
     if rule in ("windows", "mirror", "option-value")],
)  # fmt: skip
def test_a_pod_that_declined_may_have_what_a_sidecar_forbids(changes: dict[str, Any]) -> None:
    declined = changed(plain_pod(), {"/metadata/labels/sluice~1inject": "disabled", **changes})
    assert rules(declined, TRANSPARENT, OPTIONAL) == []


@pytest.mark.parametrize("mode", FRAGMENTS)
@pytest.mark.parametrize("changes", ADMITTED)
def test_a_change_that_almost_breaks_a_rule_is_admitted(mode: str, changes: dict[str, Any]) -> None:
    fragment = FRAGMENTS[mode]
    assert rules(changed(governed_pod(fragment), placed(changes, mode)), fragment) == []


def test_a_pod_without_the_sidecar_is_refused() -> None:
    assert rules(plain_pod()) == ["sidecar-missing", "volumes"]
    assert rules({"spec": {"containers": [{"name": "sluice-proxy"}]}})[0] == "sidecar-missing"


def test_a_container_that_starts_before_the_sidecar_is_refused() -> None:
    pod = governed_pod(EXPLICIT)
    pod["spec"]["initContainers"].insert(0, {"name": "first", "image": "a"})
    assert rules(pod) == ["sidecar-order"]
    swapped = governed_pod(TRANSPARENT)
    swapped["spec"]["initContainers"].reverse()
    assert rules(swapped, TRANSPARENT) == ["sidecar-order"]
    del swapped["spec"]["initContainers"][1]
    assert rules(swapped, TRANSPARENT) == ["sidecar-missing", "sidecar-order"]


def test_the_init_container_of_the_other_mode_is_a_name_of_ours() -> None:
    pod = governed_pod(EXPLICIT, initContainers=[{"name": "sluice-init", "image": "mine"}])
    assert rules(pod) == ["names"]


ORDINARY = fragment("ordinary")


@pytest.mark.parametrize(("rule", "changes"), REFUSED)
def test_the_rules_hold_for_the_sidecar_as_an_ordinary_container(
    rule: str, changes: dict[str, Any]
) -> None:
    found = rules(changed(governed_pod(ORDINARY), placed(changes, "ordinary")), ORDINARY)
    assert [each for each in found if each != "escalation" or rule == each] == [rule]


@pytest.mark.parametrize("changes", ADMITTED)
def test_a_change_that_almost_breaks_a_rule_is_admitted_beside_an_ordinary_container(
    changes: dict[str, Any],
) -> None:
    assert rules(changed(governed_pod(ORDINARY), placed(changes, "ordinary")), ORDINARY) == []


@pytest.mark.parametrize("value", ["true", "False", "", None])
def test_an_ordinary_container_needs_its_option(value: str | None) -> None:
    annotations = {} if value is None else {"config.sluice/native-sidecar": value}
    pod = changed(governed_pod(ORDINARY), {"/metadata/annotations": annotations})
    assert rules(pod, ORDINARY)[:2] == ["sidecar-missing", "names"]
    # As when it is set on a pod that runs already.
    assert "names" in rules(pod, ORDINARY, operation="UPDATE", old=governed_pod(ORDINARY))


def test_an_ordinary_container_must_be_allowed_by_the_chart() -> None:
    found = rules(governed_pod(ORDINARY), EXPLICIT)
    assert found[:2] == ["sidecar-missing", "names"]
    assert found[-1] == "option"


@pytest.mark.parametrize("added", [{"restartPolicy": "Always"}, {"lifecycle": {}},
    {"lifecycle": {"postStart": {"exec": {"command": ["sleep", "1"]}}}},
    {"startupProbe": {"httpGet": {"path": "/health/ready", "port": 8710}}}])  # fmt: skip
def test_an_ordinary_container_has_no_field_of_another(added: dict[str, Any]) -> None:
    changes = {f"/spec/containers/0/{key}": value for key, value in added.items()}
    pod = changed(governed_pod(ORDINARY), changes)
    assert rules(pod, ORDINARY) == ["sidecar-altered"]


def test_a_container_that_starts_before_an_ordinary_sidecar_is_refused() -> None:
    pod = governed_pod(ORDINARY)
    pod["spec"]["containers"].reverse()
    assert rules(pod, ORDINARY) == ["sidecar-order"]


def test_an_ephemeral_container_is_refused() -> None:
    old = governed_pod(EXPLICIT)
    pod = changed(old, {"/spec/ephemeralContainers/-": {"name": "debug", "image": "a"}})
    assert rules(pod, operation="UPDATE", old=old) == ["ephemeral"]


def test_a_pod_has_at_most_a_fixed_number_of_containers() -> None:
    pod = governed_pod(EXPLICIT)
    pod["spec"]["containers"] *= 200
    assert rules(pod) == []
    pod["spec"]["containers"].append({"name": "one-more"})
    assert rules(pod) == ["count"]


def test_restricted_namespaces_can_not_be_transparent() -> None:
    assert rules(governed_pod(TRANSPARENT), TRANSPARENT, RESTRICTED) == ["restricted"]
    assert rules(governed_pod(EXPLICIT), EXPLICIT, RESTRICTED) == []


def test_a_pod_can_decline_only_where_its_namespace_allows_it() -> None:
    declined = changed(plain_pod(), {"/metadata/labels/sluice~1inject": "disabled"})
    assert rules(declined)[0] == "opt-out"
    assert rules(declined, namespace=OPTIONAL) == []
    assert rules(plain_pod(), namespace=OPTIONAL) == ["sidecar-missing", "volumes"]
    assert rules(plain_pod(), namespace=Namespace("other", {})) == []


@pytest.mark.parametrize(
    ("rule", "changes"),
    [each for each in REFUSED if each[0] in ("token", "secret-volume", "secret-variable")],
)
def test_a_pod_that_declined_gets_no_identity(rule: str, changes: dict[str, Any]) -> None:
    declined = changed(plain_pod(), {"/metadata/labels/sluice~1inject": "disabled", **changes})
    assert rules(declined, namespace=OPTIONAL) == [rule]


def test_an_injected_pod_can_not_decline_afterwards() -> None:
    old = governed_pod(EXPLICIT)
    pod = changed(old, {"/metadata/labels/sluice~1inject": "disabled"})
    assert "names" in rules(pod, namespace=OPTIONAL, operation="UPDATE", old=old)


def test_a_pod_from_before_the_label_can_end() -> None:
    old = changed(plain_pod(), {"/metadata/finalizers": ["batch.kubernetes.io/job-tracking"]})
    assert rules(plain_pod(), operation="UPDATE", old=old) == []
    image = changed(plain_pod(), {"/spec/containers/0/image": "other"})
    assert "sidecar-missing" in rules(image, operation="UPDATE", old=old)
    option = changed(plain_pod(), {"/metadata/annotations/config.sluice~1log-level": "debug"})
    assert "option" in rules(option, operation="UPDATE", old=old)


def test_an_update_may_leave_an_older_sidecar_as_it_was() -> None:
    old = changed(governed_pod(EXPLICIT), {"/spec/initContainers/0/image": "sluice/sidecar:0.0.9"})
    new = changed(old, {"/spec/containers/0/image": "agent:2"})
    assert rules(new, operation="UPDATE", old=old) == []
    assert rules(new) == ["sidecar-altered"]
    other = changed(new, {"/spec/initContainers/0/image": "mine"})
    assert rules(other, operation="UPDATE", old=old) == ["sidecar-altered"]


def test_the_sources_are_those_of_the_pods_own_account() -> None:
    pod = governed_pod(EXPLICIT, serviceAccountName="research")
    assert rules(pod) == []
    assert rules(changed(pod, {"/spec/serviceAccountName": "other"})) == ["volumes"]


def test_every_message_names_what_offends() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.message.count("{}") == 1
    found = refusals(changed(governed_pod(EXPLICIT), {"/spec/hostPID": True}), EXPLICIT, ENABLED)
    assert str(found[0]).startswith("`hostPID` opens")


def test_every_rule_is_in_the_readme() -> None:
    readme = Path(template.__file__).with_name("README.md").read_text()
    listed = readme.split("## What is refused")[1].split("\n## ")[0]
    assert [rule.name for rule in RULES] == [
        line.split("`")[1] for line in listed.splitlines() if line.startswith("| `")
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ODD: list[Any] = [None, 0, "", "a", [], [1], ["a"], {}, {"": None}, {"a": []}]
PLACES = sorted({pointer for _, each in REFUSED for pointer in each})


def with_parts_replaced(value: Any, odd: Any) -> Iterator[Any]:
    """The value with `odd` in place of one of its parts, at any depth."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: each} for each in (odd, *with_parts_replaced(part, odd)))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            for each in (odd, *with_parts_replaced(part, odd)):
                yield [*value[:place], each, *value[place + 1 :]]


def test_no_odd_value_makes_the_rules_fail() -> None:
    tried = [(place, value) for place in PLACES for value in ODD]
    tried += [
        (place, each)
        for _, changes in REFUSED
        for place, value in changes.items()
        for each in with_parts_replaced(value, ["a"])
    ]
    for place, value in tried:
        for pointer, put in placed({place: value}, "explicit").items():
            assert isinstance(rules(changed(governed_pod(EXPLICIT), {pointer: put})), list)


@pytest.mark.deep(stands_in="test_no_odd_value_makes_the_rules_fail")
@given(st.dictionaries(st.sampled_from(PLACES), json_values, max_size=3))
@examples(500)
def test_no_pod_makes_the_rules_fail(changes: dict[str, Any]) -> None:
    pod = governed_pod(EXPLICIT)
    for pointer, value in placed(changes, "explicit").items():
        try:
            pod = changed(pod, {pointer: value})
        except (AttributeError, IndexError, TypeError, ValueError):
            continue  # an earlier change put something else where this one leads
    assert isinstance(rules(pod), list)
