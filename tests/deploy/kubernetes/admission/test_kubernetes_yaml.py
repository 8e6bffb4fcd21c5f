"""YAML with the types that Kubernetes sees in it."""

from __future__ import annotations

import json
import math
import os
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deploy.kubernetes.admission.kubernetes_yaml import Unreadable, dump, load, split
from tests.servers import need

SCALARS: dict[str, Any] = {
    "y": True,
    "No": False,
    "on": True,
    "true": True,
    "2026-11-22": "2026-11-22",
    "12:30": "12:30",
    "1e3": 1000.0,
    "1.5": 1.5,
    "0644": 420,
    "0o17": 15,
    "0x1F": 31,
    "1_000": 1000,
    "-3": -3,
    "~": None,
    "": None,
    "=": "=",
    "+.5": 0.5,
    "1.2.3": "1.2.3",
    "10Gi": "10Gi",
    "'1'": "1",
}


@pytest.mark.parametrize("written", SCALARS)
def test_a_scalar_has_the_type_that_kubectl_sees(written: str) -> None:
    assert load(f"a: {written}") == {"a": SCALARS[written]}


def test_kubectl_sees_the_same_types() -> None:
    # `kubectl patch --local` reads the patch as YAML, and prints what it read as JSON.
    lines = [f"    k{place}: {each}" for place, each in enumerate(SCALARS)]
    patch = "\n".join(["metadata:", "  managed:", *lines])
    target = '{"apiVersion": "example.com/v1", "kind": "Odd", "metadata": {"name": "a"}}'
    asked = [str(need("kubectl")), "patch", "--local", "-f", "-", "--type=merge", "-o", "json"]
    done = subprocess.run(
        [*asked, f"--patch={patch}"],
        input=target,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KUBECONFIG": os.devnull},
    )
    seen = json.loads(done.stdout)["metadata"]["managed"]
    wanted = {f"k{place}": each for place, each in enumerate(SCALARS.values()) if each is not None}
    assert seen == wanted


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["y", "1e3", "0o7", "2026-11-22", "a\nb", " x", "x ", "a: b", "#", "-", "~"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_a_text_that_resembles_another_type_is_quoted() -> None:
    texts = [*SCALARS, "a: b", "- x", "# no", " x ", "{a}", "a, b"]
    texts += ["a\nb", "\n", " a\n", "a\n\n b\n", "\t", "\x85", "\u2028", "é", "\x00", "😀", "--- a"]
    numbers = [0, -1, 2**63, 1.5, -0.25, 1e16, -1e22, 1e-7, 5e-324, 1.7e308, math.inf, -math.inf]
    for value in (texts, {text: [text, {"a": text}] for text in texts}, [None, True, *numbers]):
        assert load(dump(value)) == value
        # PyYAML's own types differ from Go's, and both must read the same.
        assert yaml.safe_load(dump(value)) == value


@pytest.mark.deep(stands_in="test_a_text_that_resembles_another_type_is_quoted")
@given(VALUES)
def test_a_written_value_is_read_back(value: Any) -> None:
    assert load(dump(value)) == value
    # PyYAML's own types differ from Go's, and both must read the same.
    assert yaml.safe_load(dump(value)) == value


def test_infinity_and_not_a_number_are_read() -> None:
    assert load("a: .inf") == {"a": math.inf}
    assert math.isnan(load("a: .NaN")["a"])


def test_documents_are_split_at_their_markers_alone() -> None:
    text = (
        "\ufeffa: 1\n---\n# only this\n--- \nb: '---'\n---c: d\n--- # note\ne: |\n  ---\n...\n---\n"
    )
    assert split(text) == [
        "a: 1\n",
        "# only this\n",
        "b: '---'\n---c: d\n",
        "# note\ne: |\n  ---\n...\n",
    ]


def test_equal_keys_are_refused_and_merged_ones_are_not() -> None:
    with pytest.raises(Unreadable, match="line 2: key `a` is there twice"):
        load("a: 1\na: 2")
    assert load("x: &x {a: 1}\ny: {<<: *x, a: 2}") == {"x": {"a": 1}, True: {"a": 2}}
