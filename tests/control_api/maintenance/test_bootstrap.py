"""A first start loses no key, wherever it dies, and happens once, however many try."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from control_api.maintenance.bootstrap import FILE, first_start
from control_api.security import secret_file
from control_api.settings import read
from control_api.store.queries import tenants
from control_api.store.store import Store
from policies.ground.keys import key_digest, well_formed
from tests.support.control_api import MovableClock


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


async def test_a_crash_before_the_commit_leaves_keys_that_the_next_start_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)

    async def dies(*_: object) -> None:
        raise SystemError("power cut")

    monkeypatch.setattr(tenants, "install", dies)
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


@pytest.mark.deep(stands_in="test_a_malformed_first_start_file_is_replaced")
async def test_of_two_first_starts_on_one_database_one_counts(
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
