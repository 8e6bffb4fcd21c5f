"""A folder with the key files that the tests' settings name."""

from pathlib import Path

import pytest

from tests.sidecar.config.settings_file import KEY


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "keys").mkdir()
    for name in ("sidecar.key", "keys/agent.key", "agent.key"):
        (tmp_path / name).write_text(KEY + "\n")
    return tmp_path
