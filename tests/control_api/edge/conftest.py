"""Two tenants of a module's installation."""

import pytest

from tests.control_api.edge.world import Tenant
from tests.support.control_api import ControlApi


@pytest.fixture(scope="module")
def ours(api: ControlApi) -> Tenant:
    return Tenant.made(api, "ours")


@pytest.fixture(scope="module")
def theirs(api: ControlApi) -> Tenant:
    return Tenant.made(api, "theirs")
