"""Fixtures for every test. Real servers are started once per test run and shared by its workers."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner import bytecode
from tests.support import fork_server, migrated, postgres, properties
from tests.support.run_servers import SERVERS

pytest_plugins = ("tests.runner.plugin", "tests.runner.tiers")

properties.register()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Draw the seed, and create the run's folder for servers, which its workers share."""
    properties.configure(config)
    fork_server.turn_on()
    bytecode.keep(config.rootpath / ".pytest_cache" / "bytecode")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's `&` starts what follows so, and every service would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[SERVERS] = (Path(tempfile.mkdtemp(prefix="sluice-tests-")), os.getpid())


def pytest_report_header() -> list[str]:
    """Say how to draw the same again."""
    how = properties.drawn()
    return [] if how is None else [f"drawn: {how}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it after a failure too; `-q` shows no header."""
    how = properties.drawn()
    if how is not None and terminalreporter.stats.get("failed"):
        terminalreporter.write_line(f"to repeat what this run drew: {how}")


def pytest_unconfigure(config: pytest.Config) -> None:
    """A running server notices when its owner ends, and cleans up. Without one, this does."""
    folder, owner = config.stash[SERVERS]
    if owner == os.getpid() and not (folder / "postgres.json").exists():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Don't collect garbage among thousands of tests of which none is dropped: now and in every
    later collection, that would cost more than it finds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def postgres_server(pytestconfig: pytest.Config) -> postgres.Server:
    """The run's PostgreSQL."""
    return postgres.shared_server(*pytestconfig.stash[SERVERS])


@pytest.fixture
def postgres_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """`postgresql+asyncpg://…` of a fresh, empty database on a real PostgreSQL."""
    with postgres.shared_server(*pytestconfig.stash[SERVERS]).database() as url:
        yield url


@pytest.fixture
def migrated_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """The same for a database at the newest schema, which the role `service` may use."""
    with migrated.database(*pytestconfig.stash[SERVERS]) as url:
        yield url


@pytest.fixture(scope="module")
def migrated_url_of_module(pytestconfig: pytest.Config) -> Iterator[str]:
    """The same for a database that a module's tests share."""
    with migrated.database(*pytestconfig.stash[SERVERS]) as url:
        yield url
