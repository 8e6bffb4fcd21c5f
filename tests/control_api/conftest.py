"""Running control APIs, for tests that share one and for those that need their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.servers import need
from tests.support import browsing
from tests.support.browser_tabs import Tabs
from tests.support.control_api import ControlApi, running_control_api
from tests.support.postgres import serving
from tests.support.shared_control_api import new_tenant


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that drives the browser runs in the event loop in which it was started."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """One browser for a worker's tests."""
    async with browsing.launched(need("chromium")) as browser:
        yield browser


@pytest.fixture(scope="session")
def tabs(chromium: Browser) -> Tabs:
    """The browser's tabs, each lent to one test after the other."""
    return Tabs(chromium)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """Shared by a module's tests: none may depend on what is not there."""
    with running_control_api(tmp_path_factory.mktemp("api")) as started:
        yield started


@pytest.fixture(scope="module")
def api_on_postgresql(
    migrated_url_of_module: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlApi]:
    """The same on PostgreSQL."""
    url = serving(migrated_url_of_module)
    with running_control_api(tmp_path_factory.mktemp("api"), database_url=url) as started:
        yield started


@pytest.fixture
def tenant(api: ControlApi) -> Iterator[ControlApi]:
    """A test's own tenant, just after its creation."""
    with new_tenant(api) as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database of `either` and `either_tenant`: once each."""
    kind: str = request.param
    return kind


@pytest.fixture
def either_tenant(request: pytest.FixtureRequest, database: str) -> Iterator[ControlApi]:
    """The same, once on each database."""
    name = "api" if database == "sqlite" else "api_on_postgresql"
    with new_tenant(request.getfixturevalue(name)) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[ControlApi]:
    """A test's own installation, just after its first start."""
    with running_control_api(tmp_path) as started:
        yield started


@pytest.fixture
def either(request: pytest.FixtureRequest, tmp_path: Path, database: str) -> Iterator[ControlApi]:
    """A test's own, once on each database."""
    url = None
    if database == "postgresql":
        url = serving(request.getfixturevalue("migrated_url"))
    with running_control_api(tmp_path, database_url=url) as started:
        yield started
