"""The policy and the rules in Python agree on any value of an option."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.admission.settings import fits
from deploy.kubernetes.admission.vocabulary import Namespace
from sidecar.redirect.plan import networks as skipped_networks
from tests.deploy.kubernetes.admission.governed_pods import changed, governed_pod
from tests.kubernetes.test_validating_policy import agree, fragment, namespaces
from tests.support.properties import examples

ports = st.integers(-1, 70000).map(str) | st.sampled_from(["00001", "65535", "65536", "000001", ""])
items = st.one_of(
    ports,
    st.builds("{}-{}".format, ports, ports),
    st.text(st.sampled_from("0123456789-+ ,\n٣೩😀\0"), max_size=7),
)
option_values = st.one_of(
    st.lists(items, max_size=4).map(",".join),
    st.integers(1, 65534).map(lambda first: f"{first}-{first + 1},{first}"),
    # Around the limit of 32 items, and beyond that of 512 characters.
    st.builds(lambda item, count: ",".join([item] * count), items, st.integers(28, 60)),
    st.sampled_from(["debug", "info", "warning", "error", "Info", "info\n", "warn", "debug,info"]),
    st.text(max_size=600),
)


prefixes = st.integers(0, 130).map(str) | st.sampled_from(["08", "", "+8", "\u0668"])
bytes_ = st.sampled_from([0, 1, 2, 3, 10, 127, 128, 191, 192, 193, 255, 256]).map(str)
ipv4 = st.lists(bytes_, min_size=4, max_size=4).map(".".join)
words = st.sampled_from(["", "0", "1", "2001", "0db8", "DB8", "db8", "fd00", "ffff", "10000", "g"])
ipv6 = st.lists(words, min_size=1, max_size=9).map(":".join) | st.builds(
    "{}::{}".format, *[st.lists(words, max_size=4).map(":".join)] * 2
)
addresses = st.one_of(
    ipv4,
    ipv6,
    st.ip_addresses().map(str),
    # Around the networks of the proof.
    st.integers(0xBFFFF000, 0xC0001000).map(lambda number: str(IPv4Address(number))),
    st.integers(0xC0000100, 0xC00003FF).map(lambda number: str(IPv4Address(number))),
    st.ip_addresses(network="2001:d00::/24").map(str),
)
networks = st.builds("{}/{}".format, addresses, prefixes)
network_values = st.one_of(
    networks,
    st.lists(networks, max_size=3).map(",".join),
    st.builds(lambda item, count: ",".join([item] * count), networks, st.integers(28, 40)),
    option_values,
)


def test_a_list_of_networks_is_admitted_only_if_the_command_can_use_it() -> None:
    tried = []

    @given(value=network_values)
    @examples(1000)
    def usable(value: str) -> None:
        if fits("skip-subnets", value):
            assert skipped_networks(value)
            tried.append(value)

    usable()
    assert tried


@pytest.mark.deep(stands_in="test_a_list_of_networks_is_admitted_only_if_the_command_can_use_it")
@given(value=network_values, namespace=namespaces)
@examples(1000)
def test_webhook_and_policy_agree_on_any_list_of_networks(value: str, namespace: Namespace) -> None:
    annotations = {"config.sluice/skip-subnets": value}
    pod = changed(governed_pod(fragment("transparent")), {"/metadata/annotations": annotations})
    agree("transparent", pod, namespace)


@pytest.mark.deep(stands_in="test_a_list_of_networks_is_admitted_only_if_the_command_can_use_it")
@given(value=st.sampled_from(["true", "false", "False", "", "false\n"]) | option_values)
@examples(100)
def test_webhook_and_policy_agree_on_the_sidecar_s_form(value: str) -> None:
    pod = governed_pod(fragment("ordinary"))
    given = {"config.sluice/native-sidecar": value}
    found = agree("ordinary", changed(pod, {"/metadata/annotations": given}))
    assert bool(found) is (value != "false")


@pytest.mark.deep(stands_in="test_a_list_of_networks_is_admitted_only_if_the_command_can_use_it")
@given(level=st.none() | option_values, skipped=st.none() | option_values, namespace=namespaces)
@examples(500)
def test_webhook_and_policy_agree_on_any_value_of_an_option(
    level: str | None, skipped: str | None, namespace: Namespace
) -> None:
    given = {"log-level": level, "skip-outbound-ports": skipped}
    annotations = {f"config.sluice/{key}": each for key, each in given.items() if each is not None}
    pod = changed(governed_pod(fragment("transparent")), {"/metadata/annotations": annotations})
    agree("transparent", pod, namespace)
