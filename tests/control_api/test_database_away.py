"""A database that is away, or refuses us, at the start: one line that names the setting and the
cause, tried again for as long as `SLUICE_START_SECONDS` says, and never a traceback."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from control_api.log import log_key
from control_api.serve import serve
from control_api.store import sqlite
from control_api.store.database import connect
from control_api.store.migrate import migrate
from control_api.store.opening import open_with_retry
from control_api.store.store import Store
from control_api.store.url import DatabaseUnreachable, UnusableDatabase, parse_url, translate_error
from policies.ground.process.secret_file import make_directory
from tests.chaos.servers import Postgres
from tests.support.certificates import authority
from tests.support.control_api import ControlApi, MovableClock
from tests.support.control_api_process import ROOT, ControlApiProcess, call, process
from tests.support.log_lines import entries
from tests.support.ports import free_port
from tests.support.postgres import OWNER, SERVICE, serving
from tests.support.waiting import until

__all__ = ["process"]  # a fixture

PASSWORD = "hunter2-hunter2"
REFUSED = f"postgresql+asyncpg://sluice:{PASSWORD}@127.0.0.1:1/sluice"
ASKED = {
    "agent_role": "support",
    "user_id": "u",
    "source_id": "s",
    "sensitivity_level": "low",
}
COMMANDS = [(), ("migrate",), ("purge",)]


def last_words(service: ControlApiProcess, setting: str, code: int = 1) -> str:
    """What an ended service said at the end: one line that names the setting, and no trace."""
    assert service.ended() == code, service.said()
    said = service.said()
    assert "Traceback" not in said, said
    assert PASSWORD not in said
    line: str = entries(said)[-1]["message"]
    assert line.startswith(f"the control API ends: {setting}: "), said
    return line


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_directory(tmp_path / "data")
    log_key.open_or_make(tmp_path / "data")
    return tmp_path / "data"


async def refused(
    url: str, kind: type[Exception] = DatabaseUnreachable, seconds: float = 0, stop: bool = False
) -> str:
    """What keeps the database at `url` from being opened, in this process."""
    clock = MovableClock().clock()
    with pytest.raises(kind) as caught:
        await open_with_retry(
            partial(connect, url), "SETTING", seconds, clock.monotonic, asyncio.Event()
        )
    said = str(caught.value)
    assert said.startswith("SETTING: ")
    assert "\n" not in said
    assert PASSWORD not in said
    return said


@pytest.mark.parametrize(
    ("url", "kind", "cause"),
    [
        (REFUSED, DatabaseUnreachable, "PostgreSQL at `127.0.0.1:1`: connection refused"),
        (REFUSED.replace("127.0.0.1", "[::1]"), DatabaseUnreachable, "PostgreSQL at `[::1]:1`: "),
        (
            REFUSED.replace("127.0.0.1", "db.invalid"),
            DatabaseUnreachable,
            "PostgreSQL at `db.invalid:1`: ",
        ),
        (f"{REFUSED}?sslmode=require", UnusableDatabase, "parameters can't be used"),
        (f"{REFUSED}?sslmode=require", UnusableDatabase, "Instead of `sslmode` write `ssl`"),
        (f"{REFUSED}?ssl=verify-full", UnusableDatabase, "set PGSSLROOTCERT to the file"),
        (
            f"{REFUSED}?ssl=maybe",
            UnusableDatabase,
            "must be one of: disable, allow, prefer, require",
        ),
        (REFUSED.replace("127.0.0.1", "a" * 80), UnusableDatabase, "can't be used"),
        (REFUSED.replace(":hunter2", ":x@hunter2"), UnusableDatabase, "write it as `%40`"),
        (REFUSED.replace(":1/", ":one/"), UnusableDatabase, "can't be parsed"),
    ],
)
async def test_the_cause_is_reported_without_the_password(
    url: str, kind: type[Exception], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The driver looks for a certificate there.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGSSLROOTCERT", raising=False)
    assert cause in await refused(url, kind)


async def test_a_database_that_postgresql_does_not_have_is_reported_in_its_words(
    postgres_url: str,
) -> None:
    assert re.search(r"database \"\w+_x\" does not exist", await refused(f"{postgres_url}_x"))


@pytest.mark.deep(
    stands_in="test_a_database_that_postgresql_does_not_have_is_reported_in_its_words"
)
async def test_a_refusal_by_postgresql_is_reported_in_its_words(migrated_url: str) -> None:
    url = serving(migrated_url)
    wrong = re.sub(r":[^:@/]+@", f":{PASSWORD}@", url)
    assert "password authentication failed" in await refused(wrong)
    assert "does not exist" in await refused(f"{url}_x")
    assert "SSL upgrade" in await refused(f"{url}?ssl=require")
    with pytest.raises(UnusableDatabase, match="permission denied for schema"):
        await migrate(re.sub(r"/test_\w+$", "/postgres", url))


async def test_a_silent_server_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("control_api.database_limits.POOL_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = REFUSED.replace(":1/", f":{silent.getsockname()[1]}/")
        assert "no answer in time" in await refused(url)


async def test_a_certificate_of_another_authority_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = authority().issue("127.0.0.1")
    monkeypatch.setenv("PGSSLROOTCERT", str(authority("another").path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def upgrade() -> None:
            near, _ = listening.accept()
            near.recv(8)  # PostgreSQL's SSLRequest
            near.sendall(b"S")
            with suppress(OSError):
                context.wrap_socket(near, server_side=True)
            near.close()

        server = threading.Thread(target=upgrade)
        server.start()
        url = REFUSED.replace(":1/", f":{listening.getsockname()[1]}/")
        assert "TLS: " in await refused(f"{url}?ssl=verify-full")
        server.join()


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_ends_with_the_setting_and_the_cause(
    process: Any, command: tuple[str, ...]
) -> None:
    service = process(*command, SLUICE_DATABASE_URL=REFUSED, SLUICE_START_SECONDS="0")
    assert last_words(service, "SLUICE_DATABASE_URL").endswith("connection refused")


def test_migrate_names_the_owner_s_setting_where_that_is_used(process: Any) -> None:
    owner = {"SLUICE_MIGRATE_DATABASE_URL": REFUSED, "SLUICE_START_SECONDS": "0"}
    last_words(process("migrate", **owner), "SLUICE_MIGRATE_DATABASE_URL")


@pytest.mark.deep(
    stands_in="test_a_start_retries_until_the_database_is_there_or_a_stop_and_logs_once"
)
def test_a_start_waits_for_the_database_and_logs_the_cause_once(
    process: Any, postgres_url: str
) -> None:
    url = serving(postgres_url)
    asyncio.run(migrate(postgres_url, url))
    host, port = re.search(r"@([^:/]+):(\d+)/", url).groups()  # type: ignore[union-attr]
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        away = reserved.getsockname()[1]
        service = process(SLUICE_DATABASE_URL=url.replace(f":{port}/", f":{away}/"))
        until(
            "it says that it tries again",
            lambda: "connection refused; trying again for 30 s" in service.said(),
        )
        assert service.process.poll() is None
        with _forwarding(reserved, (host, int(port))):
            service.ready()
    assert service.said().count("connection refused") == 1


def test_a_start_gives_up_after_its_limit(process: Any) -> None:
    service = process(SLUICE_DATABASE_URL=REFUSED, SLUICE_START_SECONDS="1")
    last_words(service, "SLUICE_DATABASE_URL")
    assert service.said().count("trying again") == 1


@pytest.mark.deep(
    stands_in="test_a_start_retries_until_the_database_is_there_or_a_stop_and_logs_once"
)
@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_signal_ends_the_waiting(process: Any, workers: str) -> None:
    service = process(SLUICE_DATABASE_URL=REFUSED, SLUICE_WORKERS=workers)
    until("it says that it tries again", lambda: "trying again" in service.said())
    service.process.send_signal(signal.SIGTERM)
    assert service.ended() == 0, service.said()
    assert "Traceback" not in service.said()


async def test_an_unreachable_database_is_tried_until_it_is_there_or_the_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("control_api.store.opening.FIRST_PAUSE", 0.001)
    clock, stop = MovableClock().clock(), asyncio.Event()
    attempts: list[int] = []

    async def attempt() -> str:
        attempts.append(len(attempts))
        if len(attempts) < 4:
            raise DatabaseUnreachable("connection refused")
        return "opened"

    async def stopped() -> str:
        stop.set()
        raise DatabaseUnreachable("away")

    opened = await open_with_retry(attempt, "SETTING", 30, clock.monotonic, asyncio.Event())
    assert opened == "opened"
    told = [each.getMessage() for each in caplog.records]
    assert told == ["SETTING: connection refused; trying again for 30 s"]
    assert await open_with_retry(stopped, "SETTING", 30, clock.monotonic, stop) is None


async def test_a_start_retries_until_the_database_is_there_or_a_stop_and_logs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("control_api.store.opening.FIRST_PAUSE", 0.001)
    api, attempts, opening = ControlApi(tmp_path, database_url=REFUSED), list[str](), Store.open
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("nothing handles the signal"))

    async def counted(url: str, *given: Any) -> Store:
        attempts.append(url)
        if len(attempts) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return await opening(url, *given)

    monkeypatch.setattr(Store, "open", counted)
    try:
        await serve(api.settings, api.time.clock(), os.urandom, lambda _: pytest.fail("?"))
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, before)
    assert len(attempts) == 3
    assert caplog.text.count("connection refused; trying again for 30 s") == 1


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (sqlite3.SQLITE_FULL, DatabaseUnreachable, "ENOSPC (said so)"),
        (sqlite3.SQLITE_IOERR_SHMSIZE, DatabaseUnreachable, "said so"),
        (errno.ENOSPC, DatabaseUnreachable, "ENOSPC (no space left on device)"),
        (errno.EROFS, UnusableDatabase, "EROFS (read-only file system)"),
        (sqlite3.SQLITE_READONLY, UnusableDatabase, "said so"),
        (sqlite3.SQLITE_CANTOPEN, UnusableDatabase, "said so"),
    ],
)
async def test_a_disk_that_is_full_may_pass_and_one_that_is_read_only_does_not(
    code: int, kind: type[Exception], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error: Exception = OSError(code, "")
    if code not in (errno.ENOSPC, errno.EROFS):
        driver = sqlite3.OperationalError("said so")
        driver.sqlite_errorcode = code
        error = OperationalError("", {}, driver)
    found = translate_error(error, parse_url("sqlite+aiosqlite:////disk/sluice.db"))
    assert type(found) is kind
    assert str(found) == f"`/disk/sluice.db`: {reason}"

    def refuse(_: object) -> None:
        raise error

    monkeypatch.setattr(sqlite, "make_file", refuse)
    with pytest.raises(kind, match=f"^{re.escape(str(found))}$"):
        await connect("sqlite+aiosqlite:////disk/sluice.db")


def test_a_command_that_is_interrupted_shows_no_trace(process: Any) -> None:
    service = process("migrate", SLUICE_DATABASE_URL=REFUSED)
    until("it says that it tries again", lambda: "trying again" in service.said())
    service.process.send_signal(signal.SIGINT)
    assert service.ended() == 1
    assert "Traceback" not in service.said()


@pytest.mark.deep(
    stands_in="tests/control_api/test_workers.py::test_a_worker_that_can_not_start_ends_the_service_with_its_code"
)
def test_several_workers_report_an_unreachable_database_once_and_end(process: Any) -> None:
    service = process(SLUICE_DATABASE_URL=REFUSED, SLUICE_WORKERS="3", SLUICE_START_SECONDS="0")
    last_words(service, "SLUICE_DATABASE_URL")
    assert service.said().count("connection refused") == 1


async def test_a_file_that_sqlite_can_t_use_is_named(tmp_path: Path) -> None:
    file = tmp_path / "sluice.db"
    url = f"sqlite+aiosqlite:///{file}"
    file.write_text("this is not a database" * 500)
    assert "sluice.db`: file is not a database" in await refused(url, UnusableDatabase)
    file.unlink()
    file.mkdir()
    assert "sluice.db`: EISDIR (is a directory)" in await refused(url, UnusableDatabase)
    below = f"sqlite+aiosqlite:///{__file__}/sluice.db"
    assert "test_database_away.py/sluice.db`: " in await refused(below, UnusableDatabase)


def test_the_data_directory_s_database_is_named_by_its_setting(process: Any, data: Path) -> None:
    (data / "sluice.db").write_text("this is not a database" * 500)
    last_words(process(), "SLUICE_DATA_DIR")


@pytest.mark.deep(stands_in="test_a_disk_that_is_full_may_pass_and_one_that_is_read_only_does_not")
@pytest.mark.parametrize("mount", ["ro", "size=64k"])
def test_a_full_or_read_only_disk_is_reported(tmp_path: Path, mount: str) -> None:
    """On a file system of its own: root may write whatever a file's mode says."""
    place = tmp_path / "disk"
    place.mkdir()
    code = (
        "import asyncio, sys; from control_api.store.database import connect\n"
        "try: asyncio.run(connect(sys.argv[1]))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    inside = f'mount -t tmpfs -o {mount} none {place} && exec "$@"'
    isolated = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside, "sh"]
    if subprocess.run([*isolated, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces of one's own here")
    done = subprocess.run(
        [*isolated, sys.executable, "-c", code, f"sqlite+aiosqlite:///{place}/sluice.db"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    expected = {
        "ro": "UnusableDatabase `{}`: EROFS (read-only file system)",
        "size=64k": "DatabaseUnreachable `{}`: ",
    }
    assert done.stdout.startswith(expected[mount].format(f"{place}/sluice.db")), done


@pytest.mark.deep(
    stands_in="tests/control_api/edge/test_server_faults.py::test_each_cause_is_logged_once_a_minute_and_so_is_its_end"
)
def test_a_restart_of_the_database_logs_a_line_for_each_cause_and_its_end(
    tmp_path: Path, process: Any
) -> None:
    with tempfile.TemporaryDirectory(prefix="sluice-restart-") as made:
        Path(made).chmod(0o711)  # as root, `nobody` must get through
        server = Postgres(Path(made) / "server", free_port())
        try:
            server.make()
            url = server.url(SERVICE, server.port)
            asyncio.run(migrate(server.url(OWNER, server.port), url))
            service = process(SLUICE_DATABASE_URL=url)
            port, key = service.ready(), service.first_keys()["admin_key"]
            server.stop()
            statuses: list[int] = []

            def ask() -> bool:
                statuses.append(call(port, key, "POST", "/v1/context/evaluate", ASKED)[0])
                return statuses[-1] == 200

            end = time.monotonic() + 2
            while time.monotonic() < end:
                assert not ask()
            server.start()
            until("requests are answered", ask)
            until("alerts are delivered", lambda: "alerts are delivered again" in service.said())
        finally:
            server.stop()
    assert statuses.count(503) > 2
    told = [each["message"] for each in entries(service.said()) if each["level"] != "info"]
    for what in ("request failed with 503", "alerts can't be delivered"):
        assert len([each for each in told if each.startswith(what)]) == 1, told
    assert "recovered: API keys are checked again" in told


@contextmanager
def _forwarding(listening: socket.socket, target: tuple[str, int]) -> Iterator[None]:
    """What connects to `listening` from now on is passed on to `target`."""
    stop = threading.Event()
    listening.listen()
    listening.settimeout(0.2)

    def copy(one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def accept() -> None:
        while not stop.is_set():
            try:
                near, _ = listening.accept()
            except TimeoutError:
                continue
            near.settimeout(None)
            far = socket.create_connection(target)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
