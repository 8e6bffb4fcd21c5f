"""A full replica: what a damaged file or a full disk costs."""

import sqlite3
from pathlib import Path

import pytest

from policies.ground.signing import Signer
from policies.sets.policy_set import role_document, role_name
from sidecar.policy_cache.policy_store import CacheDamaged
from tests.sidecar.policy_cache.full_replica.polling_replica import polling_replica, run_until
from tests.support.fake_control_api import ROLE, fake_control_api, many_roles, policy


@pytest.mark.parametrize("garbage", [b"", b"not a database at all" * 100, None])
async def test_a_damaged_file_is_set_aside_and_replaced(
    tmp_path: Path, garbage: bytes | None
) -> None:
    path = tmp_path / "cache" / "policy.db"
    async with fake_control_api() as control:
        control.create_tenant()
        async with polling_replica(tmp_path, control) as replica:
            await replica.sync()
        if garbage is None:  # pages torn in the middle
            content = bytearray(path.read_bytes())
            content[4096:] = b"\xff" * (len(content) - 4096)
            garbage = bytes(content)
        path.write_bytes(garbage)
        async with polling_replica(tmp_path, control) as replica:
            assert replica.policy_set.revision == 0
            assert replica.stale()
            await replica.sync()
            assert replica.policy_set.role(ROLE) is not None
        assert path.with_suffix(".damaged").exists()


async def test_a_file_of_another_schema_version_is_set_aside(tmp_path: Path) -> None:
    async with fake_control_api() as control:
        control.create_tenant()
        async with polling_replica(tmp_path, control) as replica:
            replica.file.connection.execute("PRAGMA user_version=99")
        async with polling_replica(tmp_path, control) as replica:
            await replica.sync()
            assert replica.policy_set.role(ROLE) is not None


async def test_a_document_with_a_flipped_bit_is_never_used(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        wide = role_document([policy(allowed_sources=("*",))])
        replica.file.connection.execute(
            "UPDATE documents SET body = ? WHERE name = ?", (wide, role_name(ROLE))
        )
        with pytest.raises(CacheDamaged):
            replica.policy_set.role(ROLE)
        # The next poll begins anew, and still knows whose log this is.
        await replica.sync()
        role = replica.policy_set.role(ROLE)
        assert role is not None
        assert not role.clauses[0].allows("payroll")
        assert (tmp_path / "cache" / "policy.damaged").exists()
        control.signer = Signer.generate()
        await run_until(replica, "it is refused", lambda: replica.follower.refused)


async def test_a_disk_that_can_not_be_written_leaves_the_old_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        pages = replica.file.connection.execute("PRAGMA page_count").fetchone()[0]
        replica.file.connection.execute(f"PRAGMA max_page_count={pages}")
        control.publish(dict(many_roles(500)))
        await run_until(replica, "it fails", lambda: replica.follower.problem)
        assert "full" in str(replica.follower.problem)
        assert replica.policy_set.revision == 5
        assert replica.policy_set.role(ROLE) is not None
        replica.file.connection.execute("PRAGMA max_page_count=1000000")
        await run_until(replica, "it is well again", lambda: replica.policy_set.revision > 5)
        assert replica.policy_set.role("role-499") is not None


async def test_a_change_counts_even_if_old_rows_can_not_be_deleted(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        assert replica.policy_set.role(ROLE) is not None
        # Fails with an `OperationalError`, as a full disk does.
        replica.file.connection.execute(
            "CREATE TRIGGER full BEFORE DELETE ON documents BEGIN SELECT * FROM missing; END"
        )
        control.publish({role_name(ROLE): None})
        await run_until(replica, "it fails", lambda: replica.follower.problem)
        assert replica.policy_set.role(ROLE) is None
        replica.file.connection.execute("DROP TRIGGER full")
        await run_until(replica, "it is well again", lambda: not replica.follower.problem)


async def test_only_its_owner_can_read_the_cache(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        directory = tmp_path / "cache"
        assert directory.stat().st_mode & 0o077 == 0
        assert (directory / "policy.db").stat().st_mode & 0o077 == 0


async def test_the_file_is_kept_when_a_reader_finds_it_malformed(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        replica.file.connection.close()
        replica.file.connection = sqlite3.connect(":memory:")
        with pytest.raises(CacheDamaged):
            replica.policy_set.role("unknown")
        await replica.sync()
        assert replica.policy_set.role(ROLE) is not None


async def test_a_file_found_damaged_on_a_write_is_replaced(tmp_path: Path) -> None:
    async with fake_control_api() as control, polling_replica(tmp_path, control) as replica:
        control.create_tenant()
        await replica.sync()
        garbage = tmp_path / "garbage"
        garbage.write_bytes(b"not a database" * 1000)
        replica.file.connection.close()
        replica.file.connection = sqlite3.connect(garbage, isolation_level=None)
        await run_until(replica, "it is noticed", lambda: replica.follower.problem)
        await run_until(replica, "it is well again", lambda: not replica.follower.problem)
        assert replica.policy_set.role(ROLE) is not None
        assert (tmp_path / "cache" / "policy.damaged").exists()
