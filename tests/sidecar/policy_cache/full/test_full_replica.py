"""A full replica: how the policy set arrives, what is refused, and what a damaged file costs."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from policies.definitions.model import Key, TenantSettings
from policies.ground.keys import key_digest, make_key
from policies.ground.signing import Signer
from policies.sets.policy_set import (
    PolicySet,
    key_document,
    key_name,
    role_document,
    role_name,
    tenant_document,
)
from sidecar.control.client import ControlClient
from sidecar.policy_cache.cache_file import CacheDamaged, CacheFile
from sidecar.policy_cache.freshness import Freshness
from sidecar.policy_cache.full.full_store import FullStore, NoPolicySet
from sidecar.policy_cache.full.poll_loop import PollLoop
from sidecar.policy_cache.long_poll import LongPoll
from tests import waiting
from tests.sidecar.fake_control_api import (
    EVALUATE_KEY,
    ROLE,
    SIDECAR_KEY,
    FakeControlApi,
    fake_control_api,
    many_roles,
    policy,
)
from tests.sidecar.stand import EVALUATE, FakeClock, sidecar, until


class Copy:
    """A poll loop and its store, without the rest of a sidecar."""

    def __init__(
        self, directory: Path, control: ControlClient, clock: FakeClock, limit: float
    ) -> None:
        self.clock = clock
        self.file = CacheFile(directory)
        self.documents = FullStore(self.file)
        self.policy_set = PolicySet(self.documents.fetch)
        self.freshness = Freshness(limit, clock.clock)
        self.other_stores = 0
        self.changes: list[Any] = []
        self.follower = PollLoop(
            LongPoll(control, limit / 4),
            self.documents,
            self.policy_set,
            self.freshness,
            clock.clock,
            self.changes.append,
            self._other_store,
        )

    def _other_store(self) -> None:
        self.other_stores += 1

    def stale(self) -> bool:
        return self.freshness.stale(self.clock.clock.monotonic())

    def rows(self) -> int:
        (count,) = self.file.connection.execute("SELECT count(*) FROM documents").fetchone()
        return int(count)

    async def sync(self) -> None:
        """Polls until there is no more to fetch at once."""
        await self.follower.step()
        while self.documents.next_position != self.documents.position:
            await self.follower.step()


@asynccontextmanager
async def copy(
    tmp_path: Path, control: FakeControlApi, *, clock: FakeClock | None = None, limit: float = 2.0
) -> AsyncIterator[Copy]:
    async with ControlClient(control.address, SIDECAR_KEY) as connection:
        made = Copy(tmp_path / "cache", connection, clock or FakeClock(), limit)
        try:
            yield made
        finally:
            made.file.close()


async def test_a_first_replica_is_whole_and_fresh(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        assert held.stale()
        with pytest.raises(NoPolicySet):
            held.policy_set.settings()
        control.furnish()
        await held.sync()
        assert held.policy_set.revision == control.revision
        assert held.policy_set.settings() == TenantSettings("default")
        assert held.policy_set.role(ROLE) is not None
        assert held.policy_set.key(key_digest(EVALUATE_KEY)) is not None
        assert held.policy_set.role("nobody") is None
        assert not held.stale()


async def test_a_change_of_many_pages_comes_into_force_at_once(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.page = 10
        control.furnish()
        await held.sync()
        before = held.policy_set.revision
        control.publish({**dict(many_roles(35)), role_name(ROLE): None})
        for _ in range(3):
            await held.follower.step()
            assert held.policy_set.revision == before
            assert held.policy_set.role("role-0") is None
            assert held.policy_set.role(ROLE) is not None
        await held.follower.step()
        assert held.policy_set.revision == control.revision
        assert held.policy_set.role("role-0") is not None
        assert held.policy_set.role("role-34") is not None
        assert held.policy_set.role(ROLE) is None


async def test_a_change_that_was_cut_off_is_finished_where_it_stopped(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.page = 10
        control.furnish()
        control.publish(dict(many_roles(25)))
        await held.follower.step()
        await held.follower.step()
        asked = len(control.polls)
        control.publish({role_name("role-0"): None})
        await held.sync()
        assert [since for _, since in control.polls[asked:]] == [20, 30]
        assert held.policy_set.revision == control.revision == 31
        assert held.policy_set.role("role-0") is None
        assert held.policy_set.role("role-1") is not None


async def test_a_change_that_was_killed_halfway_leaves_the_old_set(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.page = 10
        async with copy(tmp_path, control) as held:
            control.furnish()
            await held.sync()
            before = held.policy_set.revision
            control.publish({**dict(many_roles(15)), role_name(ROLE): None})
            await held.follower.step()
            assert held.rows() == 15
        async with copy(tmp_path, control) as held:
            assert held.documents.position.revision == held.policy_set.revision == before
            assert held.policy_set.role(ROLE) is not None
            assert held.rows() == 5
            await held.sync()
            assert held.policy_set.role(ROLE) is None
            assert held.policy_set.role("role-14") is not None


async def test_what_was_replaced_or_removed_leaves_no_row(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        rows = held.rows()
        for version in range(3):
            changed = role_document([policy(version=version + 2)])
            control.publish({role_name(ROLE): changed, role_name("other"): changed})
            await held.sync()
        assert held.rows() == rows + 1
        control.publish({role_name("other"): None})
        await held.sync()
        assert held.rows() == rows
        role = held.policy_set.role(ROLE)
        assert role is not None
        assert role.clauses[0].version == 4


async def test_a_huge_change_leaves_no_row_behind_either(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        control.publish(dict(many_roles(5000)))
        await held.sync()
        assert held.policy_set.role("role-4999") is not None
        assert held.rows() == 5005
        control.publish(dict.fromkeys(dict(many_roles(4500))))
        await held.sync()
        assert held.policy_set.role("role-4499") is None
        assert held.policy_set.role("role-4500") is not None
        assert held.rows() == 505


async def test_another_store_replaces_everything(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        control.publish(dict(many_roles(20)))
        await held.sync()
        assert held.policy_set.role("role-1") is not None
        assert held.other_stores == 0
        control.epoch, control.revision, control.documents = "epoch-2", 0, {}
        control.furnish(policy(name="renewed"))
        await held.sync()
        role = held.policy_set.role(ROLE)
        assert role is not None
        assert role.clauses[0].name == "renewed"
        assert held.policy_set.role("role-1") is None
        assert held.policy_set.revision == 5
        assert held.other_stores == 1
        await held.sync()
        assert held.rows() == 5


async def run_until(held: Copy, what: str, true: Any) -> None:
    running = asyncio.create_task(held.follower.run())
    try:
        await until(what, true)
    finally:
        running.cancel()


async def test_an_older_revision_of_the_same_store_is_refused(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        # A restored backup: the same store, as it was.
        control.documents = {name: (1, body) for name, (_, body) in control.documents.items()}
        control.documents[role_name(ROLE)] = (1, role_document([policy(denied_sources=())]))
        control.revision = 1
        await run_until(held, "it is refused", lambda: held.follower.refused)
        assert "older" in str(held.follower.refused)
        assert held.policy_set.revision == 5
        held.clock.ahead += 2.1
        assert held.stale()


@pytest.mark.parametrize("spoil", ["log_key", "tenant_id"])
async def test_another_log_key_or_tenant_than_the_first_is_refused(
    tmp_path: Path, spoil: str
) -> None:
    async with fake_control_api() as control:
        async with copy(tmp_path, control) as held:
            control.furnish()
            await held.sync()
        if spoil == "log_key":
            control.signer = Signer.generate()
        else:
            control.tenant_id = "another"
        control.publish({role_name(ROLE): None})
        async with copy(tmp_path, control) as held:
            await run_until(held, "it is refused", lambda: held.follower.refused)
            assert held.policy_set.role(ROLE) is not None
        for file in (tmp_path / "cache").iterdir():
            file.unlink()
        async with copy(tmp_path, control) as held:
            await held.sync()
            assert held.policy_set.role(ROLE) is None


async def test_a_refused_set_shows_in_readiness_at_once(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control, staleness_seconds=20.0) as stand:
            control.signer = Signer.generate()
            control.publish({role_name("other"): None})
            await until("it is refused", lambda: stand.parts.follower.refused)
            assert "log key" in (await stand.problems())["policy_set"]


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
    "spoil",
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
async def test_an_answer_that_is_wrong_changes_nothing(tmp_path: Path, spoil: Any) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        control.spoil = spoil
        await run_until(held, "it fails", lambda: held.follower.problem)
        assert held.rows() == 0
        assert held.stale()
        control.spoil = None
        await run_until(held, "it is well again", lambda: held.policy_set.revision)
        assert held.follower.problem is None
        assert not held.stale()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_refusal_by_the_control_api_is_reported_and_retried(
    tmp_path: Path, status: int
) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        control.refuse_with = status
        await run_until(held, "it fails twice", lambda: held.follower.failures > 1)
        assert str(status) in str(held.follower.problem)
        assert ("key_file" in str(held.follower.problem)) == (status in (401, 403))
        control.refuse_with = None
        await run_until(held, "it is well again", lambda: not held.stale())


async def test_no_news_is_news(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control, limit=2.0) as held:
        control.furnish()
        await held.sync()
        polls = held.follower.polls
        held.clock.ahead += 1.9
        await held.follower.step()
        assert held.follower.polls == polls + 1
        assert held.freshness.age() < 1.5
        held.clock.ahead += 2.1
        assert held.stale()


async def test_a_control_api_that_answers_at_once_is_not_polled_in_a_tight_loop(
    tmp_path: Path,
) -> None:
    async with fake_control_api() as control, copy(tmp_path, control, limit=2.0) as held:
        control.furnish()
        await held.sync()
        control.hasty = True
        running = asyncio.create_task(held.follower.run())
        await asyncio.sleep(1.2)
        running.cancel()
        assert len(control.polls) < 6
        assert not held.stale()


async def test_the_age_counts_from_when_the_poll_was_sent(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control, limit=2.0) as held:
        control.furnish()
        await held.sync()
        await held.follower.step()  # which waits half a second for news
        assert held.freshness.age() > 0.4


@pytest.mark.parametrize(
    ("moved", "stale"), [(0.0, False), (25.0, False), (31.0, True), (-4.0, False), (-6.0, True)]
)
async def test_a_restart_goes_by_the_wall_clock(tmp_path: Path, moved: float, stale: bool) -> None:
    async with fake_control_api() as control, copy(tmp_path, control, limit=30.0) as held:
        control.furnish()
        await held.sync()
    clock = FakeClock()
    clock.wall_ahead = moved
    async with copy(tmp_path, control, clock=clock, limit=30.0) as held:
        assert held.stale() is stale
        assert held.policy_set.revision == 5
        if not stale:
            assert held.freshness.age() == pytest.approx(max(moved, 0), abs=2)


async def test_a_wall_clock_that_steps_ages_nothing(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control, limit=30.0) as held:
        control.furnish()
        await held.sync()
        held.clock.wall_ahead = 3600
        assert not held.stale()
        held.clock.wall_ahead = -3600
        assert not held.stale()


@pytest.mark.parametrize("garbage", [b"", b"not a database at all" * 100, None])
async def test_a_damaged_file_is_set_aside_and_replaced(
    tmp_path: Path, garbage: bytes | None
) -> None:
    path = tmp_path / "cache" / "policy.db"
    async with fake_control_api() as control:
        control.furnish()
        async with copy(tmp_path, control) as held:
            await held.sync()
        if garbage is None:  # pages torn in the middle
            whole = bytearray(path.read_bytes())
            whole[4096:] = b"\xff" * (len(whole) - 4096)
            garbage = bytes(whole)
        path.write_bytes(garbage)
        async with copy(tmp_path, control) as held:
            assert held.policy_set.revision == 0
            assert held.stale()
            await held.sync()
            assert held.policy_set.role(ROLE) is not None
        assert path.with_suffix(".damaged").exists()


async def test_a_file_of_another_schema_version_is_set_aside(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.furnish()
        async with copy(tmp_path, control) as held:
            held.file.connection.execute("PRAGMA user_version=99")
        async with copy(tmp_path, control) as held:
            await held.sync()
            assert held.policy_set.role(ROLE) is not None


async def test_a_document_with_a_flipped_bit_is_never_used(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        wide = role_document([policy(allowed_sources=("*",))])
        held.file.connection.execute(
            "UPDATE documents SET body = ? WHERE name = ?", (wide, role_name(ROLE))
        )
        with pytest.raises(CacheDamaged):
            held.policy_set.role(ROLE)
        # The next poll begins anew, and still knows whose log this is.
        await held.sync()
        role = held.policy_set.role(ROLE)
        assert role is not None
        assert not role.clauses[0].allows("payroll")
        assert (tmp_path / "cache" / "policy.damaged").exists()
        control.signer = Signer.generate()
        await run_until(held, "it is refused", lambda: held.follower.refused)


async def test_a_disk_that_can_not_be_written_leaves_the_old_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        pages = held.file.connection.execute("PRAGMA page_count").fetchone()[0]
        held.file.connection.execute(f"PRAGMA max_page_count={pages}")
        control.publish(dict(many_roles(500)))
        await run_until(held, "it fails", lambda: held.follower.problem)
        assert "full" in str(held.follower.problem)
        assert held.policy_set.revision == 5
        assert held.policy_set.role(ROLE) is not None
        held.file.connection.execute("PRAGMA max_page_count=1000000")
        await run_until(held, "it is well again", lambda: held.policy_set.revision > 5)
        assert held.policy_set.role("role-499") is not None


async def test_the_cache_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        directory = tmp_path / "cache"
        assert directory.stat().st_mode & 0o077 == 0
        assert (directory / "policy.db").stat().st_mode & 0o077 == 0


async def test_a_redirect_is_not_followed_with_the_key(tmp_path: Path) -> None:
    asked = []

    async def thief(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
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

    elsewhere = await asyncio.start_server(thief, "127.0.0.1", 0)
    here = await asyncio.start_server(redirect, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{here.sockets[0].getsockname()[1]}"
    async with elsewhere, here, ControlClient(address, SIDECAR_KEY) as control:
        held = Copy(tmp_path / "cache", control, FakeClock(), 2.0)
        await run_until(held, "it fails", lambda: held.follower.failures > 1)
        assert "307" in str(held.follower.problem)
        assert not asked
        held.file.close()


async def test_keys_come_and_go_with_the_set(tmp_path: Path) -> None:
    another = make_key(b"a" * 32)
    name = key_name(key_digest(another))
    async with fake_control_api() as control:
        control.furnish()
        async with sidecar(tmp_path, control) as stand:
            assert (await stand.call("POST", EVALUATE, b"{}", key=another)).status == 403
            control.publish({name: key_document(Key("key_a", "evaluate"))})

            async def answers(status: int) -> bool:
                answer = await stand.call("POST", EVALUATE, b"{}", key=another)
                return answer.status == status

            for wanted, document in ((422, None), (403, key_document(Key("key_a", "read")))):
                await waiting.until_told(f"{wanted} is answered", partial(answers, wanted))
                control.publish({name: document})


async def test_memory_holds_what_is_used_not_what_there_is(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.publish({"tenant": tenant_document(TenantSettings("default"))})
        control.publish(dict(many_roles(3000)))
        await held.sync()
        assert len(held.policy_set._compiled) == 0
        held.policy_set.role("role-7")
        assert len(held.policy_set._compiled) == 1


async def test_the_file_survives_a_reader_that_finds_it_malformed(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        held.file.connection.close()
        held.file.connection = sqlite3.connect(":memory:")
        with pytest.raises(CacheDamaged):
            held.policy_set.role("whoever")
        await held.sync()
        assert held.policy_set.role(ROLE) is not None


async def test_a_file_found_damaged_on_a_write_is_replaced(tmp_path: Path) -> None:
    async with fake_control_api() as control, copy(tmp_path, control) as held:
        control.furnish()
        await held.sync()
        garbage = tmp_path / "garbage"
        garbage.write_bytes(b"not a database" * 1000)
        held.file.connection.close()
        held.file.connection = sqlite3.connect(garbage, isolation_level=None)
        await run_until(held, "it is noticed", lambda: held.follower.problem)
        await run_until(held, "it is well again", lambda: not held.follower.problem)
        assert held.policy_set.role(ROLE) is not None
        assert (tmp_path / "cache" / "policy.damaged").exists()
