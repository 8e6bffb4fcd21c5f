"""Of several hosts, one serves: a primary and its standbys, of which some are away."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from control_api.store.postgresql.engine import Hosts

FAULTS: dict[str, Exception] = {
    "refuses": ConnectionRefusedError(),
    "is silent": TimeoutError(),
    "starts": asyncpg.CannotConnectNowError("it starts"),
    "closes": asyncpg.ConnectionDoesNotExistError("closed"),
    "stands by": asyncpg.TargetServerAttributeNotMatched("a standby"),
}


class Driver:
    """Stands in for the dialect: `serving` is the host that answers. `asked` has each attempt."""

    def __init__(self, serving: str | None) -> None:
        self.serving = serving
        self.asked: list[tuple[str, float]] = []

    def connect(self, host: str, port: int, timeout: float) -> Any:
        self.asked.append((host, timeout))
        if host == self.serving:
            return host
        raise FAULTS[host]


def connected(hosts: Hosts, driver: Driver, names: list[str]) -> Any:
    given = {"host": names, "port": [5432] * len(names), "timeout": 12.0}
    driver.asked.clear()
    return hosts.connect(driver, None, [], given)  # type: ignore[arg-type]  # see `Driver`


def test_the_host_that_serves_is_found_and_tried_first() -> None:
    hosts, driver = Hosts(), Driver("serves")
    names = [*FAULTS, "serves"]
    assert connected(hosts, driver, names) == "serves"
    # Each has its share of the time.
    assert driver.asked == [(name, 2.0) for name in names]
    assert connected(hosts, driver, names) == "serves"
    assert driver.asked == [("serves", 2.0)]
    # After a failover, another one does.
    driver.serving = "stands by"
    FAULTS["serves"] = ConnectionRefusedError()
    assert connected(hosts, driver, names) == "stands by"
    assert [name for name, _ in driver.asked[:2]] == ["serves", "refuses"]


@pytest.mark.parametrize("name", FAULTS)
def test_that_none_serves_is_a_fault_that_may_pass(name: str) -> None:
    with pytest.raises(OSError, match=None if isinstance(FAULTS[name], OSError) else "no host"):
        connected(Hosts(), Driver(None), [name])
