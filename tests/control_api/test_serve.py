"""The service as a process: how it starts, what prevents a start, and how it stops."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import pty
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from control_api.__main__ import announce_start, print_keys
from control_api.log import log_key
from control_api.serve import Started, serve
from control_api.store.schema.version import READABLE_SINCE, Migration, head
from control_api.store.tenant_cache import TenantCache
from control_api.tenants.bootstrap import FirstKeys
from policies.ground.process import secret_file
from policies.ground.process.secret_file import UnusableFile
from tests.support.command import Command, command
from tests.support.control_api import ControlApi, asked
from tests.support.control_api_process import ROOT, ControlApiProcess, call, process
from tests.support.postgres import serving, unbound
from tests.support.waiting import until

__all__ = ["command", "process"]  # fixtures


def test_first_keys_are_shown_on_a_terminal_and_elsewhere_only_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, file = FirstKeys("default", "slc_admin", "slc_super"), tmp_path / "data" / "first.json"
    print_keys(keys, file)
    said = capsys.readouterr().out
    assert "slc_" not in said
    assert said.count(f"the keys are in {file}") == 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_keys(keys, file)
    said = capsys.readouterr().out
    assert "slc_admin" in said
    assert "slc_super" in said
    print_keys(None, file)  # a later start
    assert capsys.readouterr().out == ""
    secret_file.make_directory(file.parent)
    secret_file.write(file, b"{}")
    assert [each.stat().st_mode & 0o777 for each in (file.parent, file)] == [0o700, 0o600]


async def test_first_keys_are_in_private_files_and_shown_on_a_terminal_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        folder = tmp_path / str(terminal)
        folder.mkdir()
        await started_once(ControlApi(folder))
        data, said = folder / "data", capsys.readouterr().out
        path = data / "first-start.json"
        assert (json.loads(path.read_text())["admin_key"] in said) is terminal
        assert said.count(f"the keys are in {path}") == 1
        modes = [each.stat().st_mode & 0o777 for each in (data, path, data / "log.key")]
        assert modes == [0o700, 0o600, 0o600]
    await started_once(ControlApi(tmp_path / "True"))  # a later start
    assert capsys.readouterr().out == ""


async def started_once(api: ControlApi) -> None:
    """Starts the service, tells the operator, and stops it."""
    stop = asyncio.Event()

    def announced(started: Started) -> None:
        announce_start(api.settings, started)
        stop.set()

    await serve(api.settings, api.time.clock(), os.urandom, announced, stop)


def evaluation(key: str) -> bytes:
    """A request as it is sent."""
    body = json.dumps(asked()).encode()
    head = (
        f"POST /v1/context/evaluate HTTP/1.1\r\nHost: x\r\nX-API-Key: {key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def test_either_signal_ends_the_service_once_it_has_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sluice.serve")

    def unhandled(*_: object) -> None:
        raise AssertionError("nothing handles the signal")

    keys: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.signal(number, unhandled)
        api, waiting = ControlApi(tmp_path), list[socket.socket]()

        def announced(
            started: Started, number: int = number, waiting: list[socket.socket] = waiting
        ) -> None:
            if started.first_keys is not None:
                keys.append(started.first_keys.admin_key)
            for _ in range(4):
                waiting.append(socket.create_connection(("127.0.0.1", started.listen.port)))
                waiting[-1].sendall(evaluation(keys[0]))
            os.kill(os.getpid(), number)

        try:
            await serve(api.settings, api.time.clock(), os.urandom, announced)
        finally:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, before)
        for each in waiting:
            each.settimeout(30)
            assert each.recv(65536).startswith(b"HTTP/1.1 200")
            each.close()
    told = [each.getMessage() for each in caplog.records if each.name == "sluice.serve"]
    started, *stopped = told[: len(told) // 2]
    assert started.startswith("SQLite, without Redis; checkpoints in `file:///")
    assert stopped == ["stopping: no more requests are accepted", "stopped"]
    assert told == [started, *stopped] * 2


@pytest.mark.parametrize("setting", ["SLUICE_CONTROL_LISTEN", "SLUICE_METRICS_LISTEN"])
def test_a_taken_port_is_named_with_its_setting(command: Command, setting: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, said = command(**{setting: address})
    assert code == 1
    assert f"{setting}: can't listen on `{address}`" in said


def test_a_bug_does_not_count_as_a_drained_stop(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves `main`, so that the process ends with 1 and a trace."""

    async def follow(_: TenantCache) -> None:
        raise RuntimeError("the loop died")

    monkeypatch.setattr(TenantCache, "follow", follow)
    with pytest.raises(ExceptionGroup) as caught:
        command()
    assert caught.group_contains(RuntimeError, match="the loop died")


def test_a_changed_store_stops_the_start_with_exit_code_one(
    command: Command, tmp_path: Path
) -> None:
    asyncio.run(started_once(ControlApi(tmp_path)))
    last = "(SELECT max(seq) FROM log_entries)"
    changes = {
        f"DELETE FROM log_entries WHERE seq = {last}": "ends at seq",
        "UPDATE alembic_version SET version_num = '9999'; PRAGMA user_version = 9999": "newer",
    }
    for statements, told in changes.items():
        with closing(sqlite3.connect(tmp_path / "data" / "sluice.db")) as database:
            database.executescript(statements)
        code, said = command()
        assert (code, told in said) == (1, True), said


def test_a_signing_key_that_others_can_read_or_of_another_form_is_refused(tmp_path: Path) -> None:
    log_key.open_or_make(tmp_path)
    path = tmp_path / "log.key"
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(UnusableFile, match="chmod 600"):
        log_key.open_or_make(tmp_path)
    path.chmod(0o600)
    path.write_text("nonsense")
    with pytest.raises(UnusableFile):
        log_key.open_or_make(tmp_path)
    assert path.read_text() == "nonsense"


def test_a_migration_through_a_pooler_is_refused(command: Command) -> None:
    url = "postgresql+asyncpg://sluice@127.0.0.1:1/sluice"
    pooled = {"SLUICE_DATABASE_URL": url, "SLUICE_DATABASE_POOLED": "1"}
    code, said = command("migrate", **pooled)
    assert code == 1
    assert "SLUICE_MIGRATE_DATABASE_URL must name PostgreSQL itself" in said
    direct = {"SLUICE_MIGRATE_DATABASE_URL": url, "SLUICE_START_SECONDS": "0"}
    code, said = command("migrate", **pooled, **direct)  # it tries
    assert code == 1
    assert "SLUICE_MIGRATE_DATABASE_URL: PostgreSQL at `127.0.0.1:1`: connection refused" in said


async def test_a_loop_that_dies_ends_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(_: TenantCache) -> None:
        raise RuntimeError("the loop died")

    monkeypatch.setattr(TenantCache, "follow", follow)
    api = ControlApi(tmp_path)
    with pytest.raises(ExceptionGroup) as caught:
        await serve(api.settings, api.time.clock(), os.urandom, lambda _: None, asyncio.Event())
    assert caught.group_contains(RuntimeError, match="the loop died")


@pytest.mark.deep(stands_in="test_first_keys_are_in_private_files_and_shown_on_a_terminal_alone")
def test_a_first_start_keeps_its_keys_in_a_private_file_and_out_of_a_log(process: Any) -> None:
    first = process()
    port = first.ready()
    keys = first.first_keys()
    path = first.directory / "data" / "first-start.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (first.directory / "data").stat().st_mode & 0o077 == 0
    assert (first.directory / "data" / "log.key").stat().st_mode & 0o777 == 0o600
    assert list(keys) == ["tenant_id", "admin_key", "superadmin_key"]
    assert keys["tenant_id"] == "default"
    # Standard output is no terminal here, as in a container: it says only where the keys are.
    assert "slc_" not in first.said()
    assert first.said().count(f"the keys are in {path}") == 1
    assert call(port, keys["admin_key"], "GET", "/v1/keys")[0] == 200
    assert "superadmin" in call(port, keys["superadmin_key"], "GET", "/v1/keys")[1]["message"]
    first.process.send_signal(signal.SIGTERM)
    assert first.ended() == 0
    again = process()
    assert call(again.ready(), keys["admin_key"], "GET", "/v1/keys")[0] == 200
    assert "the keys are in" not in again.said()
    assert again.first_keys() == keys


@pytest.mark.deep(stands_in="test_first_keys_are_in_private_files_and_shown_on_a_terminal_alone")
def test_a_first_start_on_a_terminal_shows_its_keys(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    output = open(theirs, "w")  # noqa: SIM115  # the child's, closed below
    service = ControlApiProcess(tmp_path, output=output)
    output.close()
    said = b""
    try:
        while b"listens on" not in said:
            said += os.read(ours, 4096)
        keys = service.first_keys()
        assert keys["admin_key"].encode() in said
        assert keys["superadmin_key"].encode() in said
    finally:
        service.process.kill()
        service.process.wait()
        os.close(ours)


@pytest.mark.deep(stands_in="test_either_signal_ends_the_service_once_it_has_answered")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_open_requests_and_exits_with_success(process: Any, number: int) -> None:
    """Clients that never stop asking: each gets whole answers until the connection is closed."""
    service = process()
    port = service.ready()
    key, answered, broken = service.first_keys()["admin_key"], [], []

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"X-API-Key": key, "Content-Type": "application/json"}
        while True:
            try:
                connection.request("POST", "/v1/context/evaluate", json.dumps(asked()), headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                return
            if answer.status == 200:
                answered.append(json.loads(body)["event_id"])
            else:
                broken.append((answer.status, body))

    threads = [threading.Thread(target=client) for _ in range(16)]
    for thread in threads:
        thread.start()
    until("requests are answered", lambda: len(answered) > 100)
    service.process.send_signal(number)
    assert service.ended() == 0, service.said()
    for thread in threads:
        thread.join()
    assert not broken
    with sqlite3.connect(service.directory / "data" / "sluice.db") as database:
        recorded = {row[0] for row in database.execute("SELECT eid FROM log_entries")}
    assert set(answered) <= recorded


@pytest.mark.deep(stands_in="test_a_taken_port_is_named_with_its_setting")
def test_a_taken_port_is_named_with_its_setting_and_exits_1(process: Any) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        for setting in ("SLUICE_CONTROL_LISTEN", "SLUICE_METRICS_LISTEN"):
            service = process(**{setting: address})
            assert service.ended() == 1
            assert setting in service.said()
            assert address in service.said()
            assert "Traceback" not in service.said()


def test_all_unusable_settings_are_reported_at_once_and_exit_2(process: Any) -> None:
    secret = "too-short-a-secret"
    service = process(
        SLUICE_CONTROL_LISTEN="nowhere",
        SLUICE_SUPERADMIN_KEY=secret,
        SLUICE_REQUIRE_AGENT_ID="yes",
        SLUICE_SESION_TTL_MINUTES="5",
        SLUICE_DATABASE_URL="mysql://user:hunter2@host/db",
    )
    assert service.ended() == 2
    said = service.said()
    assert len(said.splitlines()) == 5
    assert "SLUICE_SESION_TTL_MINUTES: there is no such setting: did you mean" in said
    assert secret not in said
    assert "hunter2" not in said
    assert not (service.directory / "data").exists()


def test_an_unknown_argument_exits_2(process: Any) -> None:
    service = process("serve", "please")
    assert service.ended() == 2
    assert "usage" in service.said()


def test_migrate_prints_the_revisions_before_and_after(command: Command, tmp_path: Path) -> None:
    url = {"SLUICE_DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/a.db"}
    code, said = command("migrate", **url)
    assert (code, said) == (0, f"the database had no schema, and has `{head()}` now\n")
    code, said = command("migrate", **url)
    assert (code, said) == (
        0,
        f"nothing to do: the database has the schema `{head()}` of this version\n",
    )
    assert str(Migration("0007", head())) == (
        f"the database's schema was `0007`, and is `{head()}` now"
    )
    assert f"`9999`, which is newer than this version's `{head()}`" in str(
        Migration("9999", "9999")
    )


@pytest.mark.deep(stands_in="test_a_migration_through_a_pooler_is_refused")
def test_migrate_does_not_go_through_a_pooler(process: Any, postgres_url: str) -> None:
    pooled = {"SLUICE_DATABASE_URL": postgres_url, "SLUICE_DATABASE_POOLED": "1"}
    refused = process("migrate", **pooled)
    assert refused.ended() == 1
    assert "SLUICE_MIGRATE_DATABASE_URL must name PostgreSQL itself" in refused.said()
    assert process("migrate", **pooled, SLUICE_MIGRATE_DATABASE_URL=postgres_url).ended() == 0


@pytest.mark.deep(stands_in="test_migrate_excludes_older_versions_only_when_told_to_finish")
def test_migrate_brings_the_schema_to_head_and_exits_0(process: Any, postgres_url: str) -> None:
    refused = process(SLUICE_DATABASE_URL=postgres_url)
    assert refused.ended() == 1
    assert "sluice migrate" in refused.said()
    assert "Traceback" not in refused.said()
    service = serving(postgres_url)
    for _ in range(2):
        urls = {"SLUICE_MIGRATE_DATABASE_URL": postgres_url, "SLUICE_DATABASE_URL": service}
        assert process("migrate", **urls).ended() == 0
    refused = process(SLUICE_DATABASE_URL=unbound(postgres_url))
    assert refused.ended() == 1
    assert "NOBYPASSRLS" in refused.said()
    assert "Traceback" not in refused.said()
    started = process(SLUICE_DATABASE_URL=service)
    key = started.ready() and started.first_keys()["admin_key"]
    assert call(started.ready(), key, "GET", "/v1/audit/verify")[1]["valid"] is True


def test_migrate_excludes_older_versions_only_when_told_to_finish(
    command: Command, migrated_url: str, tmp_path: Path
) -> None:
    """The schema's mark names the oldest version that may use the database."""
    older = f"readable since {READABLE_SINCE}"
    answered(migrated_url, f"COMMENT ON TABLE alembic_version IS '{older}'")
    service = serving(migrated_url)
    urls = {"SLUICE_MIGRATE_DATABASE_URL": migrated_url, "SLUICE_DATABASE_URL": service}
    for arguments, mark in (((), older), (("--finish",), f"readable since {head()}")):
        answered(migrated_url, "REVOKE ALL ON ALL TABLES IN SCHEMA public FROM service")
        assert command("migrate", *arguments, **urls)[0] == 0
        assert answered(migrated_url, "SELECT obj_description('alembic_version'::regclass)") == mark
    asyncio.run(started_once(ControlApi(tmp_path, database_url=service)))
    answered(migrated_url, "DELETE FROM alembic_version")
    for url, remedy in ((unbound(migrated_url), "NOBYPASSRLS"), (service, "sluice migrate")):
        code, said = command(SLUICE_DATABASE_URL=url)
        assert (code, remedy in said) == (1, True), said


def answered(url: str, statement: str) -> object:
    """The first value that PostgreSQL answers with."""

    async def run() -> object:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(run())


@pytest.mark.deep(stands_in="test_a_changed_store_stops_the_start_with_exit_code_one")
def test_a_store_that_can_t_be_used_exits_1_without_a_traceback(process: Any) -> None:
    service = process()
    service.ready()
    service.process.kill()
    service.ended()
    with sqlite3.connect(service.directory / "data" / "sluice.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.execute("PRAGMA user_version = 9999")
    again = process()
    assert again.ended() == 1
    assert "newer" in again.said()
    assert "Traceback" not in again.said()


@pytest.mark.deep(stands_in="test_a_signing_key_that_others_can_read_or_of_another_form_is_refused")
def test_a_secret_that_others_can_read_is_refused(process: Any) -> None:
    service = process()
    service.ready()
    service.process.send_signal(signal.SIGTERM)
    service.ended()
    path = service.directory / "data" / "log.key"
    path.chmod(0o644)
    again = process()
    assert again.ended() == 1
    assert "chmod 600" in again.said()
    path.chmod(0o600)
    path.write_text("nonsense")
    assert process().ended() == 1
    assert path.read_text() == "nonsense"


@pytest.mark.deep(stands_in="test_a_changed_store_stops_the_start_with_exit_code_one")
def test_a_log_that_was_changed_stops_the_start(process: Any) -> None:
    service = process()
    service.ready()
    service.process.send_signal(signal.SIGTERM)
    service.ended()
    with sqlite3.connect(service.directory / "data" / "sluice.db") as database:
        database.execute("DELETE FROM log_entries WHERE seq = (SELECT max(seq) FROM log_entries)")
    again = process()
    assert again.ended() == 1


@pytest.mark.deep(stands_in="test_a_bug_does_not_count_as_a_drained_stop")
def test_a_loop_that_dies_ends_the_process_with_1(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from control_api.store.tenant_cache import TenantCache\n"
        "async def follow(self):\n"
        "    await asyncio.sleep(0.5)\n"
        "    raise RuntimeError('the loop died')\n"
        "TenantCache.follow = follow\n"
        "from control_api.__main__ import main\n"
        "sys.exit(main([]))\n"
    )
    policies = tmp_path / "policies"
    policies.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "SLUICE_DATA_DIR": str(tmp_path / "data"),
            "SLUICE_POLICY_DIR": str(policies),
            "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "the loop died" in done.stderr


@pytest.mark.deep(
    stands_in="tests/control_api/store/test_group_commit.py::test_a_caller_that_hangs_up_withdraws_nothing_and_disturbs_no_other"
)
def test_a_client_that_hangs_up_undoes_nothing(fresh: ControlApi) -> None:
    before = fresh.verified()["events"]
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", fresh.port)) as connection:
            connection.sendall(evaluation(fresh.admin_key))
            time.sleep(0.002)
    until("the log has grown", lambda: fresh.verified()["events"] > before)
    fresh.verified()
