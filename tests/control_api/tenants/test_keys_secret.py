"""The job that makes a cluster's Secret of keys: it creates, and never reads or replaces.

What an API server answers is played here; `tests/deploy/helm` has the job's rights.
"""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from control_api.tenants.bootstrap import Cluster, NoSecret, create, fresh_keys


@asynccontextmanager
async def server(status: int, body: Any) -> AsyncIterator[tuple[Cluster, list[Any]]]:
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, dict(request.headers), await request.json()))
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", answer)
    async with TestServer(app) as running:
        address = str(running.make_url("")).rstrip("/")
        yield Cluster(address, "sluice-system", "the-token", None), seen


async def test_the_secret_is_created_by_one_request() -> None:
    keys = fresh_keys(os.urandom)
    async with server(201, {}) as (cluster, seen):
        assert await create(cluster, "sluice-keys", keys)
    [(method, path, headers, body)] = seen
    assert (method, path) == ("POST", "/api/v1/namespaces/sluice-system/secrets")
    assert headers["Authorization"] == "Bearer the-token"
    assert body["metadata"]["name"] == "sluice-keys"
    assert {name: base64.b64decode(value) for name, value in body["data"].items()} == keys


async def test_an_existing_secret_is_not_changed() -> None:
    async with server(409, {"message": "exists"}) as (cluster, seen):
        assert not await create(cluster, "sluice-keys", fresh_keys(os.urandom))
    assert [method for method, *_ in seen] == ["POST"]


@pytest.mark.parametrize("status", [200, 307, 403, 500])
async def test_any_other_answer_is_a_failure_that_names_no_key(status: int) -> None:
    keys = fresh_keys(os.urandom)
    async with server(status, {"message": "forbidden: create secrets"}) as (cluster, _):
        with pytest.raises(NoSecret, match="forbidden: create secrets") as raised:
            await create(cluster, "sluice-keys", keys)
    assert not [key for key in keys.values() if key.decode() in str(raised.value)]


async def test_an_answer_that_is_no_status_is_a_failure() -> None:
    async with server(502, "bad gateway") as (cluster, _):
        with pytest.raises(NoSecret, match="not one of an API server"):
            await create(cluster, "sluice-keys", {})


async def test_an_unreachable_api_server_is_a_failure() -> None:
    async with server(201, {}) as (cluster, _):
        pass
    with pytest.raises(NoSecret, match="does not answer"):
        await create(cluster, "sluice-keys", {})


def test_outside_of_a_pod_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoSecret, match="no pod"):
        Cluster.of_pod({}, tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(NoSecret, match="does not hold a service account"):
        Cluster.of_pod(environ, tmp_path)


def test_the_token_shows_in_no_representation() -> None:
    assert "the-token" not in repr(Cluster("https://host", "sluice-system", "the-token", None))
