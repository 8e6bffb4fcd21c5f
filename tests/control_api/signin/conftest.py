"""A real identity provider for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control_api.signin.real_provider import RealProvider
from tests.control_api.signin.signing_in import REDIRECT


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealProvider]:
    """Speaks plain HTTP, and knows the client of `REDIRECT`."""
    made = RealProvider(tmp_path_factory.mktemp("provider"))
    made.add_client(REDIRECT)
    made.start()
    yield made
    made.stop()
