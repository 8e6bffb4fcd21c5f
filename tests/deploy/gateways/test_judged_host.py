"""Where the host names part of what is requested (kind `s3`), the host that a gateway's check says
is the one that the gateway forwards: the upstream's own, and no word of a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.gateways import recipes
from tests.deploy.gateways.gateway_programs import STARTED, Behind, gateway
from tests.deploy.gateways.raw_requests import get, one
from tests.deploy.gateways.recording_upstream import running_upstream

SAFETY = "host said"
"""The name of the safety lines that say the host to the door."""
OWN_HEAD = {
    name: recipes.sidecar(name)["doors"][0]["protocol"] == "envoy_http"
    for name in STARTED
    if recipes.sidecar(name)["doors"][0]["protocol"] != "envoy_grpc"
}
"""The gateways that ask over HTTP, and whether the check's own `Host` is the request's."""
LINES = [
    (name, number) for name in STARTED for number, line in recipes.safety(name) if line == SAFETY
]


def hosts(name: str, folder: Path, change: recipes.Change) -> list[tuple[list[str], list[str]]]:
    """Which hosts the checks said, and which were forwarded, when a client claims another."""
    with (
        running_upstream() as door,
        running_upstream() as upstream,
        gateway(name, folder, Behind(door.port, door.port, upstream.port, "key"), change) as port,
    ):
        door.take(), upstream.take()
        one(port, get("/a", "X-Forwarded-Host: forged.test"))
        one(port, get("/a", "X-Forwarded-Host: forged.test", "X-Forwarded-Host: kb.test"))
        one(port, get("http://open.test/a"))
        own = [f"127.0.0.1:{upstream.port}"]
        both = list(zip(door.take(), upstream.take(), strict=True))
        assert [sent.all("host") for _, sent in both] == [own] * len(both)
        said = "host" if OWN_HEAD[name] else "x-forwarded-host"
        return [(check.all(said), sent.all("host")) for check, sent in both]


@pytest.mark.parametrize("name", OWN_HEAD)
def test_the_host_that_is_judged_is_the_one_that_is_forwarded(name: str, tmp_path: Path) -> None:
    found = hosts(name, tmp_path, recipes.UNCHANGED)
    assert len(found) >= 2  # HAProxy refuses a target that names another host
    # A door for `s3` denies a check that says none.
    assert all(judged in ([], forwarded) for judged, forwarded in found)


@pytest.mark.parametrize(("name", "number"), LINES)
def test_a_client_chooses_the_host_without_the_safety_line(
    name: str, number: int, tmp_path: Path
) -> None:
    found = hosts(name, tmp_path, recipes.Change(number))
    said, forwarded = found[0]
    assert said == ["forged.test"] != forwarded
