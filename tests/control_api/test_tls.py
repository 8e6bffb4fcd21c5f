"""TLS of the API's port: what is spoken, who is let in, and files that are written anew."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from control_api.serve import serve
from control_api.settings import read
from control_api.store.migrate import migrate
from control_api.worker_args import WorkerArgs
from policies.ground.process.sockets import bind
from policies.ground.process.tls_files import RenewingContext, seconds_left
from policies.ground.settings import SettingsError
from tests.support.certificates import Authority, authority
from tests.support.control_api import ControlApi, running_control_api
from tests.support.control_api_process import ControlApiProcess, process
from tests.support.postgres import serving
from tests.support.waiting import until

__all__ = ["process"]  # a fixture
PARTS = ("certificate", "key", "client_ca")


class Files(NamedTuple):
    """Three files in a folder of the test's, and who signed the first."""

    folder: Path
    issuer: Authority

    def path(self, part: str) -> Path:
        return self.folder / part

    def environ(self, *parts: str) -> dict[str, str]:
        return {f"SLUICE_TLS_{part.upper()}": str(self.path(part)) for part in parts or PARTS[:2]}

    def put(self, part: str, content: bytes) -> None:
        """By a rename, as a tool that renews certificates should."""
        new = self.folder / "new"
        new.write_bytes(content)
        new.replace(self.path(part))

    def renew(self, *names: str) -> bytes:
        """Another pair in place of the one that is there; the certificate's DER."""
        pair = self.issuer.issue(*(names or ("127.0.0.1",)))
        self.put("key", pair.key.read_bytes())
        self.put("certificate", pair.certificate.read_bytes())
        return ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    folder = tmp_path / "tls"
    folder.mkdir()
    made = Files(folder, authority())
    made.renew()
    made.put("client_ca", authority("clients").path.read_bytes())
    return made


def shown(port: int, context: ssl.SSLContext | None = None) -> bytes | None:
    """The certificate that the API shows, after one request that it answered."""
    context = context or authority().client()
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Server"]) == (200, "sluice")
        answer.read()
        assert isinstance(connection.sock, ssl.SSLSocket)
        assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
        return connection.sock.getpeercert(binary_form=True)
    finally:
        connection.close()


def refused(port: int, context: ssl.SSLContext) -> bool:
    try:
        shown(port, context)
    except (ssl.SSLError, ConnectionError, http.client.BadStatusLine):
        return True
    return False


def logged(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    found = (each for each in caplog.records if each.name == "sluice.tls")
    return [each.getMessage() for each in found if each.levelname == level]


def test_old_tls_is_refused_and_an_authority_requires_client_certificates(
    files: Files,
) -> None:
    for parts, verified in ((PARTS[:2], ssl.CERT_NONE), (PARTS, ssl.CERT_REQUIRED)):
        tls = read(files.environ(*parts)).tls
        assert tls is not None
        context = tls.context()
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.verify_mode is verified
        authorities = {each["subject"] for each in context.get_ca_certs()}
        assert len(authorities) == len(parts) - 2


@pytest.mark.deep(stands_in="test_a_client_without_a_handshake_blocks_no_other")
def test_the_port_accepts_only_modern_tls(tmp_path: Path, files: Files) -> None:
    with running_control_api(tmp_path, **files.environ()) as api:
        assert shown(api.port)
        older = authority().client()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        assert shown(api.port, older)
        assert api.settings.tls is not None
        assert api.settings.tls.context().minimum_version is ssl.TLSVersion.TLSv1_2
        with pytest.raises((http.client.HTTPException, OSError)):
            api.call("GET", "/health")


@pytest.mark.deep(stands_in="test_each_changed_file_counts_from_the_next_handshake_on")
def test_a_client_needs_a_certificate_if_an_authority_is_set(tmp_path: Path, files: Files) -> None:
    clients = authority("clients")
    with running_control_api(tmp_path, **files.environ(*PARTS)) as api:
        assert shown(api.port, authority().client(clients.issue("a client")))
        assert refused(api.port, authority().client())
        assert refused(api.port, authority().client(authority().issue("of another")))
        # The authority is replaced: who was let in by the old one is not let in any more.
        files.put("client_ca", authority().path.read_bytes())
        assert refused(api.port, authority().client(clients.issue("a client")))
        assert shown(api.port, authority().client(authority().issue("of another")))


@pytest.mark.deep(stands_in="test_a_worker_renews_its_certificate")
def test_a_renewed_certificate_is_served(tmp_path: Path, files: Files) -> None:
    with running_control_api(tmp_path, **files.environ()) as api:
        first = shown(api.port)
        second = files.renew()
        assert shown(api.port) == second != first


def test_a_service_with_tls_shows_when_its_certificate_expires(
    tmp_path: Path, files: Files
) -> None:
    settings = {**files.environ(), "SLUICE_METRICS_LISTEN": "127.0.0.1:0"}
    with running_control_api(tmp_path, **settings) as api:
        assert api.started is not None
        assert api.started.metrics_listen is not None
        port = api.started.metrics_listen.port
        for there in (True, False):
            text = api.call("GET", "/metrics", key=None, port=port).raw.decode()
            found = re.findall(r"^sluice_tls_certificate_expiry_seconds (\S+)$", text, re.M)
            assert [86400 < float(each) < 3 * 86400 for each in found] == [True] * there
            files.path("certificate").unlink(missing_ok=True)


def test_each_changed_file_counts_from_the_next_handshake_on(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    tls = read(files.environ(*PARTS)).tls
    assert tls is not None
    renewing = RenewingContext.of(tls)

    def used() -> ssl.SSLContext:
        return renewing.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True).context

    first = used()
    assert used() is first
    files.renew()
    second = used()
    assert second is not first
    files.put("client_ca", authority().path.read_bytes())
    third = used()
    assert third.get_ca_certs() != second.get_ca_certs()
    assert {each.verify_mode for each in (first, second, third)} == {ssl.CERT_REQUIRED}
    files.put("certificate", b"not a certificate")
    assert used() is used() is third
    files.path("certificate").unlink()
    assert used() is used() is third
    wrong, missing = logged(caplog, "ERROR")
    assert wrong.startswith("the current certificates stay in use: SLUICE_TLS_CERTIFICATE: ")
    assert "can't be read: ENOENT (no such file" in missing
    files.renew()
    assert used() is not third
    assert len(logged(caplog, "ERROR")) == 2


async def test_a_worker_renews_its_certificate(tmp_path: Path, files: Files) -> None:
    api, started, stop = ControlApi(tmp_path, **files.environ()), asyncio.Event(), asyncio.Event()
    (sockets,) = bind(api.settings.control_listen, "SLUICE_CONTROL_LISTEN")
    port = sockets[0].getsockname()[1]
    worker = WorkerArgs(0, 1, tuple(each.detach() for each in sockets), (), -1)
    (tmp_path / "data" / "workers").mkdir()
    async with asyncio.TaskGroup() as group:
        given = (api.settings, api.time.clock(), os.urandom, lambda _: started.set(), stop, worker)
        group.create_task(serve(*given))
        await started.wait()
        first = await asyncio.to_thread(shown, port)
        second = files.renew()
        assert await asyncio.to_thread(shown, port) == second != first
        stop.set()


def test_the_seconds_until_a_certificate_expires_are_those_of_its_file(files: Files) -> None:
    now, day = time.time_ns() // 1000, 86400
    assert day < seconds_left(files.path("certificate"), now) < 3 * day
    files.path("certificate").unlink()
    assert not seconds_left(files.path("certificate"), now) > 0


@pytest.mark.deep(stands_in="test_a_service_with_tls_shows_when_its_certificate_expires")
def test_the_metrics_show_when_the_certificate_expires(tmp_path: Path, files: Files) -> None:
    name = "sluice_tls_certificate_expiry_seconds"
    (tmp_path / "plain").mkdir()
    settings = {**files.environ(), "SLUICE_METRICS_LISTEN": "127.0.0.1:0"}
    with running_control_api(tmp_path, **settings) as api:
        assert api.started is not None
        assert api.started.metrics_listen is not None
        port = api.started.metrics_listen.port
        text = api.call("GET", "/metrics", key=None, port=port).raw.decode()
        (seconds,) = re.findall(rf"^{name} (\S+)$", text, re.M)
        assert 86400 < float(seconds) < 3 * 86400
        files.path("certificate").unlink()
        text = api.call("GET", "/metrics", key=None, port=port).raw.decode()
        assert not re.findall(rf"^{name} ", text, re.M)
    with running_control_api(tmp_path / "plain") as api:
        text = api.call("GET", "/metrics", key=None).raw.decode()
        assert not re.findall(rf"^{name} ", text, re.M)


def test_a_swapped_link_is_a_renewed_certificate(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kubernetes does: files are links by way of `..data`, which moves from folder to folder."""
    mounted, second = tmp_path / "mounted", b""
    for version in ("1", "2"):
        (mounted / f"..{version}").mkdir(parents=True)
        second = files.renew()
        for part in PARTS[:2]:
            shutil.copy(files.path(part), mounted / f"..{version}" / part)
    (mounted / "..data").symlink_to("..1")
    for part in PARTS[:2]:
        (mounted / part).symlink_to(Path("..data", part))
    given = Files(mounted, authority())
    with running_control_api(tmp_path, **given.environ()) as api:
        first = shown(api.port)
        (mounted / "..data_tmp").symlink_to("..2")
        (mounted / "..data_tmp").replace(mounted / "..data")
        assert shown(api.port) == second != first
        (mounted / "..2" / "certificate").write_bytes(b"not a certificate")
        assert shown(api.port) == shown(api.port) == second
    (error,) = logged(caplog, "ERROR")
    assert error.startswith("the current certificates stay in use: SLUICE_TLS_CERTIFICATE: ")


@pytest.mark.deep(stands_in="test_each_changed_file_counts_from_the_next_handshake_on")
def test_an_unusable_file_leaves_the_old_certificate_and_is_logged_once(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    with running_control_api(tmp_path, **files.environ()) as api:
        first = shown(api.port)
        files.put("certificate", b"not a certificate")
        assert shown(api.port) == shown(api.port) == first
        (logged_error,) = logged(caplog, "ERROR")
        assert logged_error.startswith(
            "the current certificates stay in use: SLUICE_TLS_CERTIFICATE: "
        )
        files.path("certificate").unlink()
        assert shown(api.port) == first
        assert "can't be read: ENOENT (no such file" in logged(caplog, "ERROR")[1]
        second = files.renew()
        assert shown(api.port) == second
        assert len(logged(caplog, "ERROR")) == 2


def test_a_client_without_a_handshake_blocks_no_other(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    with running_control_api(tmp_path, **files.environ()) as api:
        silent = [socket.create_connection(("127.0.0.1", api.port)) for _ in range(20)]
        silent[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert shown(api.port)
        assert not silent[0].recv(100).startswith(b"HTTP")
        assert api.settings.tls is not None
        assert api.settings.tls.context().minimum_version is ssl.TLSVersion.TLSv1_2
    for each in silent:
        each.close()
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize(
    ("parts", "broken", "said"),
    [
        (("certificate",), "", "SLUICE_TLS_KEY: is needed"),
        (("key",), "", "SLUICE_TLS_CERTIFICATE: is needed"),
        (PARTS[:2], "certificate", "SLUICE_TLS_CERTIFICATE: does not match its key"),
        (PARTS, "client_ca", "SLUICE_TLS_CLIENT_CA: contains no certificate"),
    ],
)
def test_unusable_settings_are_refused_with_a_message(
    files: Files, parts: tuple[str, ...], broken: str, said: str
) -> None:
    if broken:
        files.put(broken, b"nothing of use")
    with pytest.raises(SettingsError) as caught:
        read(files.environ(*parts))
    assert said in "\n".join(caught.value.complaints)


def test_missing_files_are_reported_with_every_other_fault(files: Files) -> None:
    files.path("key").unlink()
    with pytest.raises(SettingsError) as caught:
        read({**files.environ(), "SLUICE_LOG_LEVEL": "loud"})
    assert len(caught.value.complaints) == 2
    assert (
        f"SLUICE_TLS_KEY: `{files.path('key')}` can't be read: ENOENT (no such file or directory)"
        in (caught.value.complaints)
    )


@pytest.mark.parametrize("tls", [True, False])
def test_an_address_that_is_not_loopback_without_tls_is_a_warning(
    tmp_path: Path, files: Files, caplog: pytest.LogCaptureFixture, tls: bool
) -> None:
    environ = {"SLUICE_CONTROL_LISTEN": "0.0.0.0:0", **(files.environ() if tls else {})}
    with running_control_api(tmp_path, **environ):
        logged_error = [each.getMessage() for each in caplog.records if each.name == "sluice.serve"]
        assert any("SLUICE_TLS_CERTIFICATE" in each for each in logged_error) is not tls


def test_loopback_without_tls_is_no_warning(
    fresh: ControlApi, caplog: pytest.LogCaptureFixture
) -> None:
    assert not [each for each in caplog.records if "SLUICE_TLS" in each.getMessage()]


@pytest.mark.deep(stands_in="test_a_worker_renews_its_certificate")
def test_several_workers_renew_and_drain(process: Any, files: Files, postgres_url: str) -> None:
    url = serving(postgres_url)
    asyncio.run(migrate(postgres_url, url))
    service: ControlApiProcess = process(
        SLUICE_DATABASE_URL=url, SLUICE_WORKERS="2", **files.environ()
    )
    mark = "listens on https://127.0.0.1:"
    until(
        "it listens, or has ended",
        lambda: mark in service.said() or service.process.poll() is not None,
    )
    port = int(service.said().partition(mark)[2].split('"')[0])
    assert shown(port)
    second = files.renew()
    assert {shown(port) for _ in range(12)} == {second}
    os.kill(service.process.pid, signal.SIGTERM)
    assert service.ended() == 0, service.said()
    assert "Traceback" not in service.said()
