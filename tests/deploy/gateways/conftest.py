"""What gateways are put before, running: once for all tests of this folder that only ask."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.gateways.gateway_programs import STARTED
from tests.deploy.gateways.protected import Protected, protected


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    with protected(tmp_path_factory.mktemp("protected"), [*STARTED, "ingress-nginx"]) as running:
        yield running
