"""Visitors of the console of a running control API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from control_api.console.page import Visit
from control_api.edge.route import Operation
from tests.control_api.console.reader import Visitor
from tests.support.company_week import CompanyWeek, inhabited
from tests.support.control_api import SUPERADMIN, ControlApi
from tests.support.shared_control_api import new_tenant


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CompanyWeek]:
    """Shared by a worker's tests, which only add to it: what a test changes, it makes first."""
    with inhabited(tmp_path_factory.mktemp("world")) as lived:
        yield lived


@pytest.fixture
def tenant(api: ControlApi) -> Iterator[ControlApi]:
    """A tenant of the test's own at that API, as its admin sees it."""
    with new_tenant(api) as made:
        yield made


@pytest.fixture
def console(api: ControlApi) -> Visitor:
    """Signed in with the admin's key of the default tenant, at an API that the module shares."""
    return Visitor(api).sign_in(api.admin_key)


@pytest.fixture
def reader(api: ControlApi) -> Visitor:
    """Signed in with a key of the scope `read`."""
    return Visitor(api).sign_in(api.new_key("read"))


@pytest.fixture
def one_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of the console have one row on a page, in place of fifty."""
    call = Visit.call

    async def cut(visit: Visit, operation: Operation, **fields: Any) -> Any:
        if fields.get("limit") == "50":
            fields["limit"] = "1"
        return await call(visit, operation, **fields)

    monkeypatch.setattr(Visit, "call", cut)


@pytest.fixture
def superadmin(api: ControlApi) -> Visitor:
    """Signed in with the superadmin's key."""
    return Visitor(api).sign_in(SUPERADMIN)
