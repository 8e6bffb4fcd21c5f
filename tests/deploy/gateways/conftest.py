"""What gateways are put before, running: once for all tests of this folder that only ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.gateways.gateway_programs import STARTED, gateway
from tests.deploy.gateways.protected import Protected, protected


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    with protected(tmp_path_factory.mktemp("protected"), [*STARTED, "ingress-nginx"]) as running:
        yield running


class Gateways:
    """The gateways with their whole recipes, each started when a test first needs it."""

    def __init__(self, world: Protected, folder: Path, kept: ExitStack) -> None:
        self._world, self._folder, self._kept = world, folder, kept
        self._ports: dict[str, int] = {}

    def port(self, name: str) -> int:
        if name not in self._ports:
            made = gateway(name, self._folder / name, self._world.behind)
            self._ports[name] = self._kept.enter_context(made)
        return self._ports[name]


@pytest.fixture(scope="package")
def gateways(world: Protected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with ExitStack() as kept:
        yield Gateways(world, tmp_path_factory.mktemp("gateways"), kept)
