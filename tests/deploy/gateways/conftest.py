"""What gateways are put before, running: once for all tests of this folder that only ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest

from tests.deploy.gateways.gateway_programs import STARTED, gateway
from tests.deploy.gateways.protected import Protected, protected


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    with protected(tmp_path_factory.mktemp("protected"), [*STARTED, "ingress-nginx"]) as running:
        yield running


Start = Callable[[str], AbstractContextManager[int]]
"""Starts the gateway of a recipe, and yields its port."""


class Gateways:
    """Running gateways, each started when a test first needs it."""

    def __init__(self, start: Start, kept: ExitStack) -> None:
        self._start, self._kept = start, kept
        self._ports: dict[str, int] = {}

    def port(self, name: str) -> int:
        """The gateway's port. Skips the test if its program is absent."""
        if name not in self._ports:
            self._ports[name] = self._kept.enter_context(self._start(name))
        return self._ports[name]


@pytest.fixture(scope="package")
def gateways(world: Protected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    """The gateways with their whole recipes."""
    folder = tmp_path_factory.mktemp("gateways")
    with ExitStack() as kept:
        yield Gateways(lambda name: gateway(name, folder / name, world.behind), kept)
