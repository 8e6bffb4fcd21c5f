"""The policy and the rules in Python agree on any value of an option."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from control_api.admission.vocabulary import Namespace
from tests.control_api.admission.governed_pods import changed, governed_pod
from tests.kubernetes.test_validating_policy import agree, fragment, namespaces
from tests.properties import examples

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


@given(level=st.none() | option_values, skipped=st.none() | option_values, namespace=namespaces)
@examples(500)
def test_both_agree_on_any_value_of_an_option(
    level: str | None, skipped: str | None, namespace: Namespace
) -> None:
    given = {"log-level": level, "skip-outbound-ports": skipped}
    annotations = {f"config.sluice/{key}": each for key, each in given.items() if each is not None}
    pod = changed(governed_pod(fragment("transparent")), {"/metadata/annotations": annotations})
    agree("transparent", pod, namespace)
