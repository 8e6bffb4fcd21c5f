"""`sluice init --target compose`: what it writes, with which modes, and that the parts fit: started
as processes, without containers, the sample agent gets one document and is denied another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.init.run import provision
from tests.control_api.console.reader import Visitor
from tests.deploy.launcher import SLUICE, environ, sluice
from tests.support.control_api import running_control_api
from tests.support.control_api_process import ControlApiProcess, call
from tests.support.ports import free_port
from tests.support.waiting import until

SECRETS = {
    "seed", "roles.sql", "redis.acl", "sidecar.yaml", "postgres-password", "database-url",
    "owner-database-url", "redis-url", "grafana-password", "console-url", "keys/log.key",
    "keys/admin.key", "keys/superadmin.key",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose") / "sluice"
    old = os.umask(0)
    try:
        answer = sluice("init", "--target", "compose", "--dir", str(folder))
    finally:
        os.umask(old)
    assert answer.returncode == 0, answer.stderr
    assert "docker compose up --detach" in answer.stdout
    return folder


@pytest.fixture
def written(made: Path, tmp_path: Path) -> Path:
    """What `sluice init` writes: a copy, which a test may change."""
    # `-a` keeps the owners.
    subprocess.run(["cp", "-a", made, tmp_path / "sluice"], check=True)
    return tmp_path / "sluice"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_only_the_containers_user_reads_the_secrets(written: Path) -> None:
    secrets = written / "secrets"
    assert set(contents(secrets)) == SECRETS
    for path in [secrets, *secrets.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    owner = re.search(r"(?m)^SLUICE_UID=(\d+)$", (written / ".env").read_text())
    assert owner is not None
    assert owner[1] != "0"
    assert {path.stat().st_uid for path in secrets.rglob("*")} == {int(owner[1])}
    # Every password differs, and none is outside of the folder.
    passwords = set(re.findall(rb":([\w-]{40})@", b"\n".join(contents(secrets).values())))
    assert len(passwords) == 4
    outside = [text for name, text in contents(written).items() if not name.startswith("secrets/")]
    assert not any(password in text for password in passwords for text in outside)


@pytest.mark.deep(
    stands_in="tests/deploy/compose/test_compose_file.py::test_a_missing_file_is_written_again_and_nothing_else"
)
def test_a_second_run_writes_a_missing_secret_as_it_was(written: Path) -> None:
    before = contents(written)
    (written / "secrets/database-url").unlink()
    (written / "compose.yaml").write_text("edited")
    assert sluice("init", "--target", "compose", "--dir", str(written)).returncode == 0
    assert contents(written) == before | {"compose.yaml": b"edited"}


@pytest.mark.deep(
    stands_in="tests/deploy/compose/test_compose_file.py::test_the_secrets_follow_from_the_seed_alone"
)
def test_two_installations_share_no_password(written: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert sluice("init", "--target", "compose", "--dir", str(other)).returncode == 0
    first, second = contents(written / "secrets"), contents(other / "secrets")
    assert not [name for name in SECRETS if first[name] == second[name]]


@pytest.fixture
def control(written: Path, tmp_path: Path) -> Iterator[int]:
    """The control API, with the keys, policies and kind of settings that the file gives it."""
    url = tmp_path / "url"
    url.write_text(f"sqlite+aiosqlite:///{tmp_path}/store.db\n")
    process = ControlApiProcess(
        tmp_path,
        SLUICE_KEYS_DIR=str(written / "secrets/keys"),
        SLUICE_POLICY_DIR=str(written / "policies"),
        SLUICE_DATABASE_URL_FILE=str(url),
    )
    try:
        yield process.ready()
    finally:
        process.process.kill()
        process.process.wait()


def test_the_console_has_a_name_of_its_own(written: Path, tmp_path: Path) -> None:
    file = written / "secrets/console-url"
    found = re.fullmatch(r"http://([0-9a-f]{32}\.localhost):8700", file.read_text().strip())
    assert found is not None
    services = yaml.safe_load((written / "compose.yaml").read_text())["services"]
    given = services["control"]["environment"]["SLUICE_CONSOLE_URL_FILE"]
    assert given == "/run/secrets/console-url"
    with running_control_api(tmp_path, SLUICE_CONSOLE_URL_FILE=str(file)) as api:
        form = {"key": api.admin_key}
        for host in ("127.0.0.1:8700", "localhost:8700"):
            visitor = Visitor(api, host=host)
            assert visitor.post("/console/sign-in", form).status == 403
            assert not visitor.cookies
        Visitor(api, host=f"{found[1]}:8700").sign_in(api.admin_key)


@pytest.mark.deep(
    stands_in="tests/deploy/compose/test_compose_file.py::test_the_sample_agent_may_read_one_of_its_sources_by_its_policy"
)
def test_the_sample_agent_gets_what_its_policy_allows(written: Path, control: int) -> None:
    key = written / "secrets/keys/admin.key"
    provision = ("provision", "--url", f"http://127.0.0.1:{control}", "--key-file", str(key))
    agent = written / "secrets/agent"
    for _ in range(2):
        answer = sluice(*provision, "--dir", str(agent))
        assert answer.returncode == 0, answer.stderr
    keys = call(control, key.read_text().strip(), "GET", "/v1/keys")[1]
    assert [each["scope"] for each in keys].count("sidecar") == 1
    ports = {name: free_port() for name in ("source", "sidecar", "listen")}
    settings = _without_containers(written, control, ports)
    server = ("http.server", str(ports["source"]), "--bind", "127.0.0.1", "--directory")
    source = [sys.executable, "-m", *server, str(written / "source")]
    sidecar = [*SLUICE, "sidecar", "--config", str(settings)]
    running = [subprocess.Popen(command, env=environ()) for command in (source, sidecar)]
    try:
        until("the sidecar is ready", lambda: _ready(ports["listen"]))
        program = (written / "agent.py").read_text().replace("sidecar:18000", "127.0.0.1:{}")
        program = program.replace("{}", str(ports["sidecar"]))
        paths = ("handbook/returns.txt", "payroll/grades.txt")
        fetched = subprocess.run(
            [sys.executable, "-c", program, *paths],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(timeout=60) for process in running]
    assert "Goods may be returned within 30 days" in fetched.stdout
    assert "payroll/grades.txt: 403" in fetched.stdout
    assert "denied_sources" in fetched.stdout
    assert "grade 7" not in fetched.stdout
    assert codes[1] == 0


def test_a_refused_key_is_a_failure_with_a_message(
    written: Path, control: int, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{control}"
    keys, folder = written / "secrets/keys", str(written / "secrets/agent")
    wrong = written / "wrong.key"
    wrong.write_text("slc_" + "0" * 49)
    wrong.chmod(0o600)
    assert provision(["--url", url, "--key-file", str(wrong), "--dir", folder], {}) in (1, 2)
    assert capsys.readouterr().err.startswith("sluice: ")
    assert provision(["--url", url, "--dir", folder], {}) == 2
    missing = ["--key-file", str(keys / "admin.key"), "--dir", str(written / "absent")]
    assert provision(["--url", url, *missing], {}) == 1


def _without_containers(written: Path, control: int, ports: dict[str, int]) -> Path:
    """The sidecar's settings with this machine's addresses, and without the Redis."""
    text = (written / "secrets/sidecar.yaml").read_text()
    for name, here in {
        "control:8700": f"127.0.0.1:{control}",
        "source:8000": f"127.0.0.1:{ports['source']}",
        "0.0.0.0:8710": f"127.0.0.1:{ports['listen']}",
        "0.0.0.0:18000": f"127.0.0.1:{ports['sidecar']}",
        "10.0.0.0/8": "127.0.0.0/8",
        "/run/agent/": f"{written}/secrets/agent/",
        "/var/lib/sluice/": f"{written}/data/sidecar/",
    }.items():
        assert name in text
        text = text.replace(name, here)
    place = written / "sidecar-here.yaml"
    place.write_text(re.sub(r"(?m)^redis: .*\n", "", text))
    return place


def _ready(port: int) -> bool:
    try:
        return call(port, "", "GET", "/health/ready")[0] == 200
    except OSError:
        return False
