"""A first start loses no key, wherever it dies, and happens once, however many try."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from control_api.log import log_key
from control_api.serve import serve
from control_api.settings import read
from control_api.store.queries import tenant_rows
from control_api.store.store import Store
from control_api.tenants.bootstrap import ADMIN_KEY, FILE, first_start, fresh_keys, write_keys
from policies.ground.keys import key_digest, well_formed
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from tests.support.control_api import MovableClock
from tests.support.open_store import sql


def settings_of(directory: Path, **environ: str) -> Any:
    (directory / "policies").mkdir(exist_ok=True)
    (directory / "data").mkdir(exist_ok=True)
    return read(
        {
            "SLUICE_DATA_DIR": str(directory / "data"),
            "SLUICE_POLICY_DIR": str(directory / "policies"),
            **environ,
        }
    )


async def start(settings: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        store = await Store.open(settings.database_url, MovableClock().clock(), group)
        result = await first_start(store, settings, os.urandom)
    await store.close()
    return result


@asynccontextmanager
async def served(settings: Any) -> AsyncIterator[None]:
    """The whole service, from its start to the end of the block."""
    stop, ready = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        clock = MovableClock().clock()
        group.create_task(serve(settings, clock, os.urandom, lambda _: ready.set(), stop))
        await ready.wait()
        yield
        stop.set()


async def test_a_crash_before_the_commit_leaves_keys_that_the_next_start_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)

    async def dies(*_: object) -> None:
        raise SystemError("power cut")

    monkeypatch.setattr(tenant_rows, "install", dies)
    with pytest.raises(ExceptionGroup):
        await start(settings)
    monkeypatch.undo()
    left = json.loads((settings.data_dir / FILE).read_text())
    assert well_formed(left["admin_key"])
    installed, keys = await start(settings)
    assert keys.admin_key == left["admin_key"]
    assert installed.superadmin_digest == key_digest(left["superadmin_key"])


async def test_a_second_start_creates_nothing(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    first, keys = await start(settings)
    second, none = await start(settings)
    assert (second, none) == (first, None)
    assert keys is not None
    assert keys.admin_key not in repr(keys)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"tenant_id": "default"}', b'{"a": 1}'])
async def test_a_malformed_first_start_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    settings = settings_of(tmp_path)
    secret_file.write(settings.data_dir / FILE, content)
    _, keys = await start(settings)
    assert json.loads((settings.data_dir / FILE).read_text())["admin_key"] == keys.admin_key


async def test_a_configured_superadmin_key_is_neither_generated_nor_written(tmp_path: Path) -> None:
    key = "an operator's own key of enough characters"
    settings = settings_of(tmp_path, SLUICE_SUPERADMIN_KEY=key)
    installed, _ = await start(settings)
    assert installed.superadmin_digest is None
    text = (settings.data_dir / FILE).read_text()
    assert json.loads(text)["superadmin_key"] is None
    assert key not in text
    assert key not in repr(settings)


async def test_a_start_that_another_one_overtakes_leaves_no_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'shared.db'}"
    both = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        both.append(settings_of(tmp_path / name, SLUICE_DATABASE_URL=url))
    first, _ = await start(both[0])
    installed = tenant_rows.installed

    async def not_yet(*_: object) -> None:
        monkeypatch.setattr(tenant_rows, "installed", installed)

    monkeypatch.setattr(tenant_rows, "installed", not_yet)
    assert await start(both[1]) == (first, None)
    assert [(each.data_dir / FILE).exists() for each in both] == [True, False]


async def test_two_starts_with_one_secret_are_one_installation(tmp_path: Path) -> None:
    keys = fresh_keys(os.urandom)
    write_keys(tmp_path / "keys", keys)
    url, publics = f"sqlite+aiosqlite:///{tmp_path / 'shared.db'}", set()
    both: dict[str, Any] = {"SLUICE_DATABASE_URL": url, "SLUICE_KEYS_DIR": str(tmp_path / "keys")}
    both["SLUICE_CONTROL_LISTEN"] = "127.0.0.1:0"
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        settings = settings_of(tmp_path / name, **both)
        publics.add(log_key.open_or_make(settings.data_dir, settings.keys_dir).signer.public)
        made.append(await start(settings))
        # Neither key is anywhere but in the secret.
        assert [path.name for path in settings.data_dir.iterdir()] == []
        async with served(settings):
            assert not {"log.key", FILE} & {path.name for path in settings.data_dir.iterdir()}
    assert made[0] == made[1]
    assert len(publics) == 1
    [stored] = await sql(url, "SELECT digest, name FROM api_keys")
    assert (stored.digest, stored.name) == (key_digest(keys[ADMIN_KEY].decode()), "first admin")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (ADMIN_KEY, b"slc_mistyped", "holds no API key of Sluice"),
        (ADMIN_KEY, b"\xff\xfe", "holds no API key of Sluice"),
        ("log.key", b"", "holds no signing key"),
    ],
)
async def test_a_mounted_file_without_a_key_ends_the_start(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    write_keys(tmp_path / "keys", {**fresh_keys(os.urandom), name: content})
    keys = str(tmp_path / "keys")
    settings = settings_of(tmp_path, SLUICE_KEYS_DIR=keys, SLUICE_CONTROL_LISTEN="127.0.0.1:0")
    with pytest.raises(ExceptionGroup) as refused:
        async with served(settings):
            pass
    error: BaseException = refused.value
    while isinstance(error, ExceptionGroup):
        [error] = error.exceptions
    assert isinstance(error, UnusableFile)
    assert said in str(error)
    assert "mistyped" not in str(error)


@pytest.mark.deep(stands_in="test_a_start_that_another_one_overtakes_leaves_no_keys")
async def test_only_one_of_two_first_starts_on_one_database_makes_keys(
    tmp_path: Path, migrated_url: str
) -> None:
    both = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        both.append(settings_of(tmp_path / name, SLUICE_DATABASE_URL=migrated_url))
    results = await asyncio.gather(*map(start, both))
    assert results[0][0] == results[1][0]
    made = [keys for _, keys in results if keys is not None]
    files = [settings.data_dir / FILE for settings in both if (settings.data_dir / FILE).exists()]
    assert len(made) == len(files) == 1
    assert json.loads(files[0].read_text())["admin_key"] == made[0].admin_key
