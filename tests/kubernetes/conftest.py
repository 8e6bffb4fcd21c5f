"""One real API server for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.api_server import ApiServer, running_api_server


@pytest.fixture(scope="package")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Started at its first use. Skips the tests that need it where there is none."""
    folder: Path = tmp_path_factory.mktemp("kubernetes")
    with running_api_server(folder) as server:
        yield server
