"""The built files, and an environment with the wheel, made once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.package.distribution import build, empty_venv, install, lend_libraries


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and nothing that it depends on."""
    python = empty_venv(tmp_path_factory.mktemp("bare") / "venv")
    install(wheel, python)
    return python


@pytest.fixture(scope="session")
def complete(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel and all that it can use."""
    python = empty_venv(tmp_path_factory.mktemp("complete") / "a venv")
    install(wheel, python)
    lend_libraries(python)
    return python
