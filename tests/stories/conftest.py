"""A running control API and sidecar for each story."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import Stack, running


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running(tmp_path) as started:
        yield started
