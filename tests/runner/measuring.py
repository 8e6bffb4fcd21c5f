"""Measures what each test costs, in a worker: CPU seconds of all processes that it causes.

What a fixture of a wider scope costs is no test's: a module's and a class's are counted for the
file, those of a package or of the run not at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.costs import Cost
from tests.runner.cpu import Group
from tests.support import fork_server, migrated
from tests.support.run_servers import SERVERS


class Measuring:
    """A plugin of a worker that has a control group, and servers, of its own."""

    def __init__(self, config: pytest.Config, tell: Callable[[Cost], None]) -> None:
        self._group, self._tell = Group(f"sluice-tests-{os.getpid()}"), tell
        self._file = self._run = 0.0
        servers = (Path(tempfile.mkdtemp(prefix="sluice-costs-")), os.getpid())
        config.stash[SERVERS] = servers
        # What the run starts once is no test's cost.
        with migrated.database(*servers):
            fork_server.warm_up()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Tell the main process what the test cost."""
        self._file = self._run = 0.0
        begun = self._group.seconds()
        result = yield
        spent = self._group.seconds() - begun
        self._tell(Cost(item.nodeid, spent - self._file - self._run, self._file))
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        """Count a wider fixture apart. A fixture that it asks for is counted with it."""
        if fixturedef.scope == "function":
            return (yield)
        before, counted = self._group.seconds(), self._file + self._run
        result = yield
        spent = self._group.seconds() - before - (self._file + self._run - counted)
        if fixturedef.scope in ("module", "class"):
            self._file += spent
        else:
            self._run += spent
        return result
