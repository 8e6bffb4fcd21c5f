"""A listener that signs with the credentials of a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import (
    REGION,
    credentials_file,
)
from tests.sidecar.protocols.shared.signing_front import SigningFront, signing_front


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[SigningFront]:
    aws = Aws(region=REGION, credentials_file=credentials_file(tmp_path))
    async with signing_front(tmp_path, aws) as made:
        yield made
