"""The metadata as a sidecar serves it: to anyone, from the settings alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sidecar.settings.sections import AuthzenSettings
from tests.sidecar.authzen.test_metadata import pem
from tests.support.sidecar import running_sidecar

PATH = "/.well-known/authzen-configuration"
KEYS = "/.well-known/jwks.json"
SPOOFED = {
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Proto": "http",
    "Forwarded": "host=evil.example",
}


def settings(folder: Path, url: str | None, *, signed: bool) -> AuthzenSettings:
    path = folder / "authzen.pem"
    path.write_bytes(pem(Ed25519PrivateKey.generate()))
    return AuthzenSettings(url=url, signing_key_file=path if signed else None)


async def test_anyone_may_read_and_cache_the_metadata(tmp_path: Path, control: Any) -> None:
    url = "https://pdp.example.com"
    authzen = settings(tmp_path, url, signed=True)
    async with running_sidecar(tmp_path, control, authzen=authzen) as running:
        for path in (PATH, KEYS):
            plain = await running.call("GET", path, key=None)
            assert plain.status == 200
            assert plain.headers["Content-Type"] == "application/json"
            assert plain.headers["Cache-Control"] == "max-age=300"
            head = await running.call("HEAD", path, key=None)
            assert (head.status, head.body) == (200, b"")
            spoofed = await running.call("GET", path, key=None, headers=SPOOFED)
            assert spoofed.body == plain.body
            echoed = await running.call("GET", path, key=None, headers={"X-Request-ID": "a b"})
            assert echoed.status == 200
            wrong = await running.call("POST", path, b"{}", key=None)
            assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, HEAD")
        metadata = (await running.call("GET", PATH, key=None)).json()
        assert metadata["policy_decision_point"] == url
        counted = 'sluice_requests_total{operation="metadata",status="200"}'
        assert await running.metric(counted) == 9


@pytest.mark.parametrize("signed", [False, True])
async def test_without_a_url_there_is_none(tmp_path: Path, control: Any, signed: bool) -> None:
    authzen = settings(tmp_path, None, signed=signed)
    async with running_sidecar(tmp_path, control, authzen=authzen) as running:
        for path in (PATH, KEYS):
            assert (await running.call("GET", path, key=None)).status == 404


async def test_metadata_is_served_only_below_the_path_of_its_url(
    tmp_path: Path, control: Any
) -> None:
    authzen = settings(tmp_path, "https://h/t1", signed=False)
    async with running_sidecar(tmp_path, control, authzen=authzen) as running:
        statuses = {
            path: (await running.call("GET", path, key=None)).status
            for path in (f"{PATH}/t1", PATH, f"{PATH}/", f"{PATH}/t1/", f"{PATH}/t2", KEYS)
        }
        assert [path for path, status in statuses.items() if status == 200] == [f"{PATH}/t1"]
        assert set(statuses.values()) == {200, 404}


async def test_a_stale_sidecar_still_serves_its_metadata(tmp_path: Path, control: Any) -> None:
    authzen = settings(tmp_path, "https://h", signed=True)
    async with running_sidecar(tmp_path, control, authzen=authzen) as running:
        running.parts.policies.freshness.expire("the test says so")
        assert (await running.call("GET", PATH, key=None)).status == 200
