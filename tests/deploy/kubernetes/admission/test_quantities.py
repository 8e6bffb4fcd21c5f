"""Quantities in the form that the API server stores."""

from __future__ import annotations

import os
import subprocess

import pytest

from deploy.kubernetes.admission.kubernetes_yaml import dump, load
from deploy.kubernetes.admission.template import canonical
from tests.servers import need

QUANTITIES = {
    "50m": "50m",
    "64Mi": "64Mi",
    "1024Mi": "1Gi",
    "1023Ki": "1023Ki",
    "0.5": "500m",
    "1000m": "1",
    "1500m": "1500m",
    "1.5Gi": "1536Mi",
    "100000k": "100M",
    "0Mi": "0",
    "1024": "1024",
    "1.0": "1",
    "0.1Gi": "107374182400m",
    "0.5Ki": "512",
    "0.5Mi": "512Ki",
    "250n": "250n",
    "0.1n": "1n",
}


@pytest.mark.parametrize("written", QUANTITIES)
def test_a_quantity_has_one_form(written: str) -> None:
    assert canonical(written) == QUANTITIES[written]
    assert canonical(QUANTITIES[written]) == QUANTITIES[written]


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1e3", "Gi", "1.2345", "1mi", "٣", "9" * 99])
def test_other_texts_are_no_quantities(text: str) -> None:
    assert canonical(text) is None


def test_kubectl_writes_the_same() -> None:
    container = {"name": "a", "image": "a"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    keys = {f"example.com/{place}": each for place, each in enumerate(QUANTITIES)}
    limits = ",".join(f"{key}={each}" for key, each in keys.items())
    asked = [str(need("kubectl")), "set", "resources", "--local", "-o", "yaml", "-f", "-"]
    done = subprocess.run(
        [*asked, f"--limits={limits}"],
        input=dump({**pod, "spec": {"containers": [container]}}),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KUBECONFIG": os.devnull},
    )
    written = load(done.stdout)["spec"]["containers"][0]["resources"]["limits"]
    assert written == {key: QUANTITIES[each] for key, each in keys.items()}
