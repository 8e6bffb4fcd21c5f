"""The log's key: rotation, crashes during it, and replicas that share a database."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control_api.log import log_key
from control_api.purge import purge
from control_api.store.queries import log_keys
from control_api.store.url import UnusableDatabase
from policies.ground.canonical import b64
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from policies.ground.signing import endorsed
from tests.support import fork_server
from tests.support.control_api import ControlApi, running_control_api
from tests.support.open_store import opened, sql
from tests.support.postgres import serving, unbound
from tests.support.stack import ROOT

DAY = 86_400.0


@pytest.fixture
def shared(tmp_path: Path, migrated_url: str) -> Iterator[ControlApi]:
    """A replica on a database that others may share."""
    url = serving(migrated_url)
    with running_control_api(tmp_path / "one", database_url=url) as started:
        yield started


def key_of(api: ControlApi, wait: int = 0) -> Any:
    """What a sidecar learns that asks at once, or that waits for a change, in seconds."""
    return api.admin("GET", f"/v1/sidecars/policy-set?wait={wait}")


def sibling(api: ControlApi, directory: Path) -> ControlApi:
    """Another replica of the same database and checkpoint store, without the first one's files."""
    made = ControlApi(
        directory,
        database_url=api.environ["SLUICE_DATABASE_URL"],
        SLUICE_CHECKPOINT_STORE=(api.directory / "data" / "checkpoints").as_uri(),
    )
    (directory / "data").mkdir(mode=0o700)
    shutil.copy(api.directory / "data" / "first-start.json", directory / "data")
    return made


async def test_a_database_knows_each_key_and_an_older_replica_trusts_the_newer(
    sqlite_url: str, tmp_path: Path
) -> None:
    (tmp_path / "foreign").mkdir(mode=0o700)
    first = log_key.open_or_make(tmp_path)
    async with opened(sqlite_url) as world:
        await log_key.ensure_database_key(world.store, first, tmp_path)
        second = log_key.rotate(tmp_path)
        third = log_key.rotate(tmp_path)
        publics = {each.signer.public for each in (first, second, third)}
        await log_key.ensure_database_key(world.store, third, tmp_path)
        for ring in (first, second, third):
            assert set(await log_keys.trusted(world.store, ring)) == publics
            assert await log_keys.continued(world.store, ring) == third.history
        async with world.store.reading_all_tenants() as connection:
            assert await log_keys.current(connection) == third.signer.public
            moved = await log_keys.endorsements(connection)
        assert [(each.former, each.next) for each in moved] == [
            (each.former, each.next) for each in third.history
        ]
        # A restart needs the newer file.
        for ring in (first, log_key.open_or_make(tmp_path / "foreign")):
            with pytest.raises(UnusableDatabase) as refused:
                await log_key.ensure_database_key(world.store, ring, tmp_path)
            assert f"to `{tmp_path / 'log.key'}`" in str(refused.value)
            assert b64(third.signer.public) in str(refused.value)


def test_the_file_holds_the_new_seed_and_only_the_old_keys_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = log_key.open_or_make(tmp_path)
    written = secret_file.write

    def write(path: Path, content: bytes) -> None:
        written(path, content)
        # A process that is killed here has left a key that the first one vouches for.
        ring = log_key.open_existing(tmp_path)
        assert endorsed(first.signer.public, ring.history) == ring.signer.public

    monkeypatch.setattr(secret_file, "write", write)
    with (tmp_path / "log.key").open() as replaced:
        second = log_key.rotate(tmp_path)
        # It was replaced as a whole, and not written over.
        assert b64(first.signer.seed()) in replaced.read()
    third = log_key.rotate(tmp_path)
    publics = [each.signer.public for each in (first, second, third)]
    assert list(third.trusted()) == publics  # what an earlier key signed still verifies
    path = tmp_path / "log.key"
    assert path.stat().st_mode & 0o777 == 0o600
    read = log_key.open_existing(tmp_path)
    assert read.signer.seed() == third.signer.seed()
    assert read.history == third.history
    assert endorsed(first.signer.public, read.history) == third.signer.public
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    for old in (first, second):
        assert b64(old.signer.seed()) not in path.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["log.key"]


@pytest.mark.parametrize("tamper", [lambda t: t[:-20], lambda t: t.replace('"from"', '"frm"')])
def test_a_file_with_invalid_endorsements_is_refused_and_unchanged(
    tmp_path: Path, tamper: Any
) -> None:
    log_key.open_or_make(tmp_path)
    log_key.rotate(tmp_path)
    path = tmp_path / "log.key"
    path.write_text(spoiled := tamper(path.read_text()))
    for use in (log_key.open_or_make, log_key.open_existing, log_key.rotate):
        with pytest.raises(UnusableFile, match="holds no signing key"):
            use(tmp_path)
    assert path.read_text() == spoiled


def test_there_is_no_key_to_rotate_before_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(UnusableFile, match="does not exist"):
        log_key.rotate(tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.deep(stands_in="test_the_file_holds_the_new_seed_and_only_the_old_keys_signature")
def test_a_killed_rotation_leaves_the_old_key_or_the_new_one(tmp_path: Path) -> None:
    first = log_key.open_or_make(tmp_path)
    code = (
        "import sys\nfrom pathlib import Path\nfrom control_api.log.log_key import rotate\n"
        "while True: rotate(Path(sys.argv[1])); print('rotated', flush=True)\n"
    )
    seen: set[bytes] = set()
    chance = random.Random(4)
    for _ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        for _ in range(chance.randrange(1, 20)):
            assert child.stdout.readline() == b"rotated\n"
        time.sleep(chance.uniform(0, 0.01))  # at any moment of the next rotation
        child.kill()
        child.wait()
        child.stdout.close()
        ring = log_key.open_existing(tmp_path)
        assert endorsed(first.signer.public, ring.history) == ring.signer.public
        assert seen <= {each.next for each in ring.history}
        seen.add(ring.signer.public)
    assert len(seen) > 3


def test_the_command_rotates_and_shows_only_public_halves(tmp_path: Path) -> None:
    first = log_key.open_or_make(tmp_path)
    command = [sys.executable, "-m", "control_api", "rotate-key"]
    environ = {**os.environ, "SLUICE_DATA_DIR": str(tmp_path)}
    done = fork_server.run(command, environ, check=True)
    ring = log_key.open_existing(tmp_path)
    assert b64(first.signer.public) in done.stdout
    assert b64(ring.signer.public) in done.stdout
    assert b64(ring.signer.seed()) not in done.stdout + done.stderr


@pytest.mark.deep(stands_in="test_a_service_starts_with_its_database_s_key_or_its_successor")
def test_after_a_rotation_the_next_start_signs_with_the_new_key(either: ControlApi) -> None:
    before = key_of(either)
    assert before["log_key_history"] == []
    log_key.rotate(either.directory / "data")
    # The running service keeps the key that it has read.
    assert key_of(either)["log_key"] == before["log_key"]
    either.restart()
    after = key_of(either)
    (moved,) = after["log_key_history"]
    assert (moved["from"], moved["to"]) == (before["log_key"], after["log_key"])
    assert after["log_key"] != before["log_key"]


@pytest.mark.deep(stands_in="test_a_service_starts_with_its_database_s_key_or_its_successor")
def test_a_foreign_key_is_refused_with_what_to_copy(shared: ControlApi, tmp_path: Path) -> None:
    other = sibling(shared, tmp_path / "other")
    with pytest.raises(BaseExceptionGroup) as refused:
        other.start()
    said = str(refused.value.exceptions[0])
    assert isinstance(refused.value.exceptions[0], UnusableDatabase)
    assert f"to `{other.directory / 'data' / 'log.key'}`" in said
    assert key_of(shared)["log_key"] in said
    shutil.copy(shared.directory / "data" / "log.key", other.directory / "data")
    other.start()
    try:
        assert key_of(other)["log_key"] == key_of(shared)["log_key"]
    finally:
        other.stop()


@pytest.mark.deep(stands_in="test_a_service_starts_with_its_database_s_key_or_its_successor")
def test_a_store_of_an_older_version_registers_the_first_key(
    shared: ControlApi, tmp_path: Path
) -> None:
    signs = key_of(shared)["log_key"]
    shared.stop()
    url = shared.environ["SLUICE_DATABASE_URL"]
    asyncio.run(sql(unbound(url), "DELETE FROM log_keys"))
    shared.start()
    assert key_of(shared)["log_key"] == signs
    with pytest.raises(BaseExceptionGroup):
        sibling(shared, tmp_path / "other").start()


def rotated_one_of_two(shared: ControlApi, other: ControlApi) -> None:
    shutil.copy(shared.directory / "data" / "log.key", other.directory / "data")
    other.start()
    log_key.rotate(shared.directory / "data")
    shared.restart()


@pytest.mark.deep(stands_in="test_a_database_knows_each_key_and_an_older_replica_trusts_the_newer")
def test_in_a_rolling_rotation_the_old_replica_continues_until_its_restart(
    shared: ControlApi, tmp_path: Path
) -> None:
    """It signs with its own key, and trusts the new one's signatures."""
    old = sibling(shared, tmp_path / "old")
    rotated_one_of_two(shared, old)
    try:
        old.evaluate()
        shared.evaluate()
        newest = key_of(shared)
        assert key_of(old, wait=1)["log_key"] == newest["log_key_history"][0]["from"]
        assert key_of(old)["log_key"] == newest["log_key"]
        aged_and_purged(shared)
        for replica in (old, shared):
            assert replica.verified()["anchor"] is not None
    finally:
        old.stop()
    with pytest.raises(BaseExceptionGroup) as refused:
        old.start()
    assert "log.key" in str(refused.value.exceptions[0])
    shutil.copy(shared.directory / "data" / "log.key", old.directory / "data")
    old.start()
    try:
        assert key_of(old)["log_key"] == key_of(shared)["log_key"]
    finally:
        old.stop()


def test_a_service_starts_with_its_database_s_key_or_its_successor(tmp_path: Path) -> None:
    with running_control_api(tmp_path) as api:
        data = api.directory / "data"
        api.evaluate()
        aged_and_purged(api)
        before, note = key_of(api)["log_key"], api.verified()["checkpoint"]["note"]
        for _ in range(2):
            log_key.rotate(data)
        # The running service keeps the key that it has read.
        assert key_of(api)["log_key"] == before
        api.restart()
        after = key_of(api)
        first, second = after["log_key_history"]
        assert (first["from"], second["to"]) == (before, after["log_key"])
        # Each is registered, or a later rotation could begin at a key that is not known.
        url = f"sqlite:///{data / 'sluice.db'}"
        registered = asyncio.run(sql(url, "SELECT count(*) FROM log_keys"))
        assert registered == [(3,)]
        assert api.verified()["checkpoint"]["note"] == note
        # An older version registered no key.
        api.stop()
        asyncio.run(sql(url, "DELETE FROM log_keys"))
        api.start()
        assert key_of(api)["log_key"] == after["log_key"]
    (data / "log.key").unlink()
    log_key.open_or_make(data)
    with pytest.raises(BaseExceptionGroup) as refused:
        api.start()
    [error] = refused.value.exceptions
    assert isinstance(error, UnusableDatabase)
    assert f"to `{data / 'log.key'}`" in str(error)
    assert after["log_key"] in str(error)


def aged_and_purged(api: ControlApi) -> None:
    api.admin("PUT", "/v1/settings/retention", {"retention_days": 1})
    api.time.ahead += 2 * DAY
    lines: list[str] = []
    work = purge(api.settings, api.time.clock(), os.urandom, "default", lines.append)
    assert asyncio.run(work), lines


@pytest.mark.deep(stands_in="test_a_service_starts_with_its_database_s_key_or_its_successor")
def test_a_purge_under_a_former_key_verifies_under_the_new_one(either: ControlApi) -> None:
    either.evaluate()
    aged_and_purged(either)
    note = either.verified()["checkpoint"]["note"]
    log_key.rotate(either.directory / "data")
    log_key.rotate(either.directory / "data")
    either.restart()
    assert either.verified()["checkpoint"]["note"] == note
    either.evaluate()
    aged_and_purged(either)
    assert either.verified()["checkpoint"]["note"] != note


def test_a_purge_with_a_foreign_key_is_refused(shared: ControlApi, tmp_path: Path) -> None:
    other = sibling(shared, tmp_path / "other")
    log_key.open_or_make(other.directory / "data")
    work = purge(other.settings, other.time.clock(), os.urandom, "default", print)
    with pytest.raises(BaseExceptionGroup) as refused:
        asyncio.run(work)
    assert isinstance(refused.value.exceptions[0], UnusableDatabase)
