"""A database and a login for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.commands.postgres.world import World, world
from tests.support.postgres import Server


@pytest.fixture
def crm(
    postgres_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[World]:
    with world(postgres_server, tmp_path, capsys) as made:
        yield made
