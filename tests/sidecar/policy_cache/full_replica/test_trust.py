"""A full replica: which answers of the control API are refused."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from policies.ground.signing import Endorsement, Signer
from policies.sets.policy_set import role_document, role_name
from sidecar.control.client import ControlClient
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full_replica import FullReplica
from sidecar.policy_cache.policy_store import CacheFile
from tests.sidecar.policy_cache.full_replica.polling_replica import (
    PollingReplica,
    polling_replica,
    run_until,
)
from tests.support.fake_control_api import (
    ROLE,
    SIDECAR_KEY,
    FakeControlApi,
    fake_control_api,
    policy,
)
from tests.support.sidecar import FakeClock, running_sidecar, settings
from tests.support.waiting import until_async


async def test_an_older_revision_of_the_same_store_is_refused(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        # A restored backup: the same store, as it was.
        control.documents = {name: (1, body) for name, (_, body) in control.documents.items()}
        control.documents[role_name(ROLE)] = (1, role_document([policy(denied_sources=())]))
        control.revision = 1
        await run_until(replica, "it is refused", lambda: replica.follower.refused)
        assert "older" in str(replica.follower.refused)
        assert replica.policy_set.revision == 5
        replica.clock.ahead += 2.1
        assert replica.stale()


async def learned(tmp_path: Path, control: FakeControlApi) -> tuple[str | None, tuple[bytes, ...]]:
    """What a replica answers that is asked to learn who signs, and the keys that count then."""
    clock, file = FakeClock().clock, CacheFile(tmp_path / "cache")
    async with ControlClient(control.address, SIDECAR_KEY) as connection:
        told = settings(tmp_path, control)
        replica = FullReplica(told, connection, file, Freshness(2.0, clock), clock)
        try:
            return await replica.learn_key(), replica.log_keys()
        finally:
            file.close()


@pytest.mark.parametrize("tamper", ["log_key", "tenant_id"])
async def test_another_log_key_or_tenant_than_the_first_is_refused(
    tmp_path: Path, tamper: str
) -> None:
    async with fake_control_api() as control:
        async with polling_replica(tmp_path, control) as replica:
            control.create_tenant()
            await replica.sync()
        former = control.signer
        if tamper == "log_key":
            control.signer = Signer.generate()
        else:
            control.tenant_id = "another"
        control.publish({role_name(ROLE): None})
        async with polling_replica(tmp_path, control) as replica:
            await run_until(replica, "it is refused", lambda: replica.follower.refused)
            assert replica.policy_set.role(ROLE) is not None
        # Nor does it count for one that only asks who signs, until the former key endorses it.
        unknown, keys = await learned(tmp_path, control)
        assert unknown == replica.follower.refused
        assert control.signer.public not in keys or tamper == "tenant_id"
        if tamper == "log_key":
            control.endorsements = [Endorsement.by(former, control.signer.public)]
            assert await learned(tmp_path, control) == (None, (control.signer.public, *keys))
        for file in (tmp_path / "cache").iterdir():
            file.unlink()
        async with polling_replica(tmp_path, control) as replica:
            await replica.sync()
            assert replica.policy_set.role(ROLE) is None


async def test_a_refused_set_shows_in_readiness_at_once(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with running_sidecar(tmp_path, control, staleness_seconds=20.0) as running:
            control.signer = Signer.generate()
            control.publish({role_name("other"): None})
            await until_async("it is refused", lambda: running.parts.follower.refused)
            assert "log key" in (await running.problems())["policy_set"]


def _wrong_digest(answer: dict[str, Any]) -> None:
    answer["documents"][0]["digest"] = "0" * 64


def _wrong_body(answer: dict[str, Any]) -> None:
    answer["documents"][0]["body"] += " "


def _disorder(answer: dict[str, Any]) -> None:
    answer["documents"].reverse()


def _newer_than_the_set(answer: dict[str, Any]) -> None:
    answer["revision"] = 2


def _no_reset(answer: dict[str, Any]) -> None:
    answer["reset"] = False


def _more_of_nothing(answer: dict[str, Any]) -> None:
    answer.update(documents=[], more=True)


def _text_for_number(answer: dict[str, Any]) -> None:
    answer["revision"] = str(answer["revision"])


def _no_log_key(answer: dict[str, Any]) -> None:
    del answer["log_key"]


def _no_list(answer: dict[str, Any]) -> None:
    answer["documents"] = None


def _no_object(answer: dict[str, Any]) -> list[Any]:
    return [answer]


@pytest.mark.parametrize(
    "tamper",
    [
        _wrong_digest,
        _wrong_body,
        _disorder,
        _newer_than_the_set,
        _no_reset,
        _more_of_nothing,
        _text_for_number,
        _no_log_key,
        _no_list,
        _no_object,
    ],
)
async def test_a_wrong_answer_changes_nothing(tmp_path: Path, tamper: Any) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        control.tamper = tamper
        await run_until(replica, "it fails", lambda: replica.follower.problem)
        assert replica.rows() == 0
        assert replica.stale()
        control.tamper = None
        await run_until(replica, "it is well again", lambda: replica.policy_set.revision)
        assert replica.follower.problem is None
        assert not replica.stale()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_refusal_by_the_control_api_is_reported_and_retried(
    tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        control.refuse_with = status
        await run_until(replica, "it fails twice", lambda: replica.follower.failures > 1)
        [line] = caplog.messages
        what = "the policy set is not updated; everything is denied once the set is older than 2 s"
        assert line == f"{what}: {replica.follower.problem}"
        assert str(status) in str(replica.follower.problem)
        assert ("key_file" in str(replica.follower.problem)) == (status in (401, 403))
        control.refuse_with = None
        await run_until(replica, "it is well again", lambda: not replica.stale())


async def test_a_redirect_is_not_followed_with_the_key(tmp_path: Path) -> None:
    requests = []

    async def other_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        port = elsewhere.sockets[0].getsockname()[1]
        writer.write(
            b"HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\n"
            b"Location: http://127.0.0.1:%d/\r\n\r\n" % port
        )
        await writer.drain()
        writer.close()

    elsewhere = await asyncio.start_server(other_server, "127.0.0.1", 0)
    here = await asyncio.start_server(redirect, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{here.sockets[0].getsockname()[1]}"
    async with elsewhere, here, ControlClient(address, SIDECAR_KEY) as control:
        replica = PollingReplica(tmp_path / "cache", control, FakeClock(), 2.0)
        await run_until(replica, "it fails", lambda: replica.follower.failures > 1)
        assert "307" in str(replica.follower.problem)
        assert not requests
        replica.file.close()
