"""A control API that a cluster's pods enrol at, with the cluster's keys behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import ISSUER, KeySetServer, serving_keys
from tests.support.control_api import ControlApi, running_control_api
from tests.support.postgres import serving


@pytest.fixture
def key_server() -> Iterator[KeySetServer]:
    with serving_keys() as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path, key_server: KeySetServer) -> Iterator[ControlApi]:
    with running_control_api(tmp_path, SLUICE_ENROL_ISSUERS=f"{ISSUER}={key_server.url}") as api:
        yield api


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlApi]:
    """Shared by a module's tests: each takes a service account of its own."""
    with (
        serving_keys() as server,
        running_control_api(
            tmp_path_factory.mktemp("cluster"),
            SLUICE_ENROL_ISSUERS=f"{ISSUER}={server.url}; https://other={server.url}",
        ) as api,
    ):
        yield api


@pytest.fixture(params=["sqlite", "postgresql"])
def either_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, key_server: KeySetServer
) -> Iterator[ControlApi]:
    url = None
    if request.param == "postgresql":
        url = serving(request.getfixturevalue("migrated_url"))
    issuers = f"{ISSUER}={key_server.url}"
    with running_control_api(tmp_path, database_url=url, SLUICE_ENROL_ISSUERS=issuers) as api:
        yield api
