"""What a web page can have a browser of this machine send to the sidecar's own port is refused, by
DNS rebinding or from another site."""

from typing import Any

import pytest

from policies.ground.addresses import ListenAddress
from tests.sidecar.wire import GOOD
from tests.support.fake_control_api import EVALUATE_KEY
from tests.support.sidecar import EVALUATE, RunningSidecar

KEYLESS = ("/health", "/health/ready", "/metrics")


@pytest.fixture
def sidecar_settings() -> dict[str, Any]:
    return {"hosts": ("sidecar", "*.agents.test")}


@pytest.mark.parametrize("path", KEYLESS)
async def test_a_rebound_name_reads_nothing(sidecar: RunningSidecar, path: str) -> None:
    for host in ("rebound.example", "rebound.example:8710", "0.0.0.0", "10.9.9.9:8710"):
        answer = await sidecar.call("GET", path, key=None, headers={"Host": host})
        assert answer.status == 403
        assert "add it to the sidecar's `hosts`" in answer.json()["message"]
    for host in ("localhost:1", "127.0.0.1", "[::1]", "SIDECAR.:8710", "a.agents.test"):
        assert (await sidecar.call("GET", path, key=None, headers={"Host": host})).status == 200


async def test_a_rebound_name_learns_nothing_of_keys_and_paths(sidecar: RunningSidecar) -> None:
    for _ in range(2):  # the second time, the head might be in the cache
        for path in (EVALUATE, "/v1/nothing", "/nothing"):
            for key in (None, EVALUATE_KEY, "slc_wrong"):
                headers = {"Host": "rebound.example"}
                answer = await sidecar.call("POST", path, GOOD, key=key, headers=headers)
                assert (answer.status, "rebound.example" in answer.text()) == (403, True)
    assert await sidecar.records() == []


@pytest.mark.parametrize(
    "fields",
    [{"Origin": "https://page.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
async def test_a_page_of_another_site_reads_nothing_without_a_key(
    sidecar: RunningSidecar, fields: dict[str, str]
) -> None:
    for path in KEYLESS:
        assert (await sidecar.call("GET", path, key=None, headers=fields)).status == 403
    # A page can't know the key, and what asks for one is no business of its origin.
    assert (await sidecar.call("POST", EVALUATE, GOOD, headers=fields)).status == 200


async def test_refusals_are_counted_by_their_cause(sidecar: RunningSidecar) -> None:
    for fields in ({"Host": "rebound.example"}, {"Origin": "null"}, {"Origin": "null"}):
        await sidecar.call("GET", "/health", key=None, headers=fields)
    metrics = (await sidecar.call("GET", "/metrics", key=None)).text()
    assert 'sluice_foreign_requests_total{cause="host"} 1' in metrics
    assert 'sluice_foreign_requests_total{cause="origin"} 2' in metrics


class TestApart:
    """`/metrics` on a port of its own."""

    @pytest.fixture
    def sidecar_settings(self) -> dict[str, Any]:
        return {"metrics_listen": ListenAddress("127.0.0.1", 0), "hosts": ()}

    async def test_a_metrics_port_of_its_own_accepts_the_same_host_names(
        self, sidecar: RunningSidecar
    ) -> None:
        sidecar.address = sidecar.ports[-1].address
        for host, status in (("127.0.0.1:9", 200), ("sidecar", 403), ("rebound.example", 403)):
            answer = await sidecar.call("GET", "/metrics", key=None, headers={"Host": host})
            assert answer.status == status
