"""A listener that signs with the credentials of a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sidecar.settings.model import Aws
from tests.sidecar.protocols.aws import (
    REGION,
    credentials_file,
)
from tests.sidecar.protocols.shared.aws_stand import Stand, standing


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[Stand]:
    aws = Aws(region=REGION, credentials_file=credentials_file(tmp_path))
    async with standing(tmp_path, aws) as made:
        yield made
