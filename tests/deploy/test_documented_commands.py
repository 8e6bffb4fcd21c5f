"""Commands of the documents that no other test runs: `make`, dry; a control API set up by hand on
PostgreSQL and Redis; a dump and its restore; the dashboards, generated anew."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote
from urllib.parse import urlsplit

import pytest

from control_api.log.log_key import open_existing
from control_api.settings import names
from policies.ground.canonical import b64
from tests.deploy.launcher import ROOT, environ
from tests.runner import tiers
from tests.servers import need, of_system
from tests.support import postgres
from tests.support.certificates import authority
from tests.support.documents import commands, paste, put
from tests.support.ports import free_port
from tests.support.redis import running_redis
from tests.support.waiting import until

MAKE = {
    ("README.md", "start"): ["deploy.install run", "sluice up"],
    ("deploy/README.md", "try it, in a clone"): ["deploy.install run", "sluice up"],
    ("README.md", "develop"): [
        "deploy.install test", "-m pytest", "-m ruff", "-m tests.chaos", "-m tests.benchmarks",
    ],
    ("CONTRIBUTING.md", "develop"): [
        "-m mypy", "lint-imports", "-m pytest --workers=auto  -k session",
        "--quick", "--deep", "deploy.compile tree", "-m tests.chaos", "-m tests.benchmarks",
    ],
    ("tests/chaos/README.md", "chaos"): ['tests.chaos "PostgreSQL put back" --seconds 10 --keep'],
}  # fmt: skip
"""Blocks of `make`, and what it would run. What that does, other tests show."""
# Serves until it is ready and its log has a checkpoint, and stops as by Ctrl-C.
SLUICE = f"""#!/usr/bin/env bash
set -euo pipefail
here() {{ "{sys.executable}" -m deploy.command "$@"; }}
[ "$1" = control ] || {{ here "$@"; exit; }}
"{sys.executable}" -m deploy.command "$@" & served=$!
until curl -sfk "https://127.0.0.1:${{SLUICE_CONTROL_LISTEN#*:}}/health/ready"; do
  kill -0 $served; sleep 0.1
done
until find "${{SLUICE_CHECKPOINT_STORE#file://}}" -type f 2>/dev/null | grep -q .; do
  kill -0 $served; sleep 0.1
done
kill $served
wait $served
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which `make -n` may read."""
    if of_system("make") is None or of_system("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs make, git and a clone")
    folder = tmp_path_factory.mktemp("clone")
    done = paste(f"git clone -q {quote(str(ROOT))} sluice", folder, environ())
    assert done.returncode == 0, done.stderr
    return folder / "sluice"


@tiers.sampled("page")
@pytest.mark.parametrize(("page", "title"), MAKE)
def test_every_target_of_make_exists_and_runs_the_promised_commands(
    page: str, title: str, clone: Path, tmp_path: Path
) -> None:
    script = commands(page, title).replace("<this project>", quote(str(clone)))
    folder = tmp_path if "git clone" in script else clone
    done = paste(script, folder, environ(MAKEFLAGS="n", PYTHONPATH=""))
    assert done.returncode == 0, done.stderr
    assert [part for part in MAKE[page, title] if part not in done.stdout] == []


@pytest.mark.deep(
    stands_in="tests/deploy/grafana/test_dashboards.py::test_the_module_writes_both_files_beside_itself"
)
def test_the_dashboards_are_generated_in_a_clone(tmp_path: Path) -> None:
    for name in ("deploy", "policies"):
        shutil.copytree(ROOT / name, tmp_path / name)
    program = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    (tmp_path / ".venv").mkdir()
    put(tmp_path / ".venv/bin", "python", program)
    made = [tmp_path / "deploy/grafana" / name for name in ("agent.json", "fleet.json")]
    before = [path.read_bytes() for path in made]
    for path in made:
        path.unlink()
    done = paste(
        commands("deploy/grafana/README.md", "dashboards"), tmp_path, environ(PYTHONPATH="")
    )
    assert done.returncode == 0, done.stderr
    assert [path.read_bytes() for path in made] == before


def test_the_documented_settings_of_a_control_api_exist() -> None:
    script = commands("deploy/README.md", "PostgreSQL")
    told = [name.removesuffix("_FILE") for name in re.findall(r"\bSLUICE_(\w+)=", script)]
    assert {f"SLUICE_{each}" for each in told} <= {*names(), "SLUICE_MIGRATE_DATABASE_URL"}
    assert {"DATABASE_URL", "MIGRATE_DATABASE_URL", "CONTROL_LISTEN", "REDIS_URL"} <= {*told}
    # Who makes what, and who owns it.
    assert "CREATE DATABASE sluice OWNER sluice_owner" in script
    users = dict(re.findall(r"SLUICE_(\w*DATABASE_URL)=postgresql\+asyncpg://(\w+):", script))
    assert users == {"DATABASE_URL": "sluice", "MIGRATE_DATABASE_URL": "sluice_owner"}
    assert [line for line in script.splitlines() if line.endswith("sluice migrate")]
    assert {"KEYS_DIR", "SUPERADMIN_KEY", "CHECKPOINT_STORE"} <= {*told}
    # Who can dump: the owner is bound by row-level security too.
    made = commands("deploy/README.md", "dump and restore")
    assert re.search(r"CREATE ROLE sluice_backup LOGIN BYPASSRLS .* IN ROLE pg_read_all_data", made)
    assert "pg_dump -Fc -U sluice_backup " in made


@pytest.mark.deep(stands_in="test_the_documented_settings_of_a_control_api_exist")
def test_a_control_api_is_set_up_by_hand(tmp_path: Path, postgres_url: str) -> None:
    if shutil.which("psql") is None or shutil.which("curl") is None:
        pytest.skip("needs psql and curl")
    server, port, name = urlsplit(postgres_url), free_port(), f"guide_{secrets.token_hex(6)}"
    pair = authority("guide").issue("127.0.0.1")
    (tmp_path / "control.pem").write_bytes(pair.certificate.read_bytes())
    (tmp_path / "control-key.pem").write_bytes(pair.key.read_bytes())
    put(tmp_path / "bin", "sluice", SLUICE)
    as_superuser = _as_superuser(postgres_url, tmp_path / "bin")
    # Other tests use the same server, and its superuser has the name of a reader's service.
    script = commands("deploy/README.md", "PostgreSQL").replace("…", "secret")
    script = re.sub(r"((?:ROLE|DATABASE|OWNER) |//)sluice\b", rf"\1{name}", script)
    script = script.replace("sluice_owner", f"{name}_owner")
    script = script.replace("@db/sluice", f"@127.0.0.1:{server.port}/{name}")
    script = script.replace("*:8700", f"*:{port}")
    script = script.replace("/mnt/sluice-checkpoints", f"{tmp_path}/checkpoints")
    with running_redis(tmp_path / "redis") as feed:
        script = re.sub(r"rediss://\S+", f"redis://127.0.0.1:{feed.port}/0", script)
        # As if all variables came from one file, before there are keys.
        early = {"SLUICE_KEYS_DIR": "keys", "SLUICE_SUPERADMIN_KEY_FILE": "keys/superadmin.key"}
        done = paste(script, tmp_path, {**as_superuser, **early})
    copied = paste(f'psql -c "CREATE DATABASE {name}_copy TEMPLATE {name}"', tmp_path, as_superuser)
    # The copy's log of `default` has checkpoints of the key before this rotation.
    put(
        tmp_path / "log-keys", "log-before.pub", b64(open_existing(tmp_path / "keys").signer.public)
    )
    page = (ROOT / "deploy/README.md").read_text()
    (rotate,) = re.findall(r"`(env -u SLUICE_KEYS_DIR [^`]* rotate-key)`", page)
    rotated = paste(rotate, tmp_path, {**as_superuser, "SLUICE_KEYS_DIR": "keys"})
    tested = paste(_test_of_a_copy(server.port or 0, name), tmp_path, {**as_superuser, **early})
    dropped = f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {name}", f"DROP ROLE {name}_owner"
    for each in (f"DROP DATABASE {name}_copy WITH (FORCE)", *dropped):
        paste(f'psql -c "{each}"', tmp_path, as_superuser)
    assert done.returncode == 0, done.stdout + done.stderr
    assert copied.returncode == 0, copied.stderr
    assert tested.returncode == 0, tested.stdout + tested.stderr
    # With the key after the rotation alone, the log of `default` is not.
    assert (tmp_path / "alone.txt").read_text().startswith("NOT VALID")
    # Every tenant's log is verified, not only that of the first.
    assert re.findall(r"^OK: .*", tested.stdout, re.MULTILINE)[0].count("`default`") == 1
    assert len(re.findall(r"^OK: ", tested.stdout, re.MULTILINE)) == 2
    told = (tmp_path / "copy.log").read_text()
    assert "the checkpoint store has lost the checkpoints of tenant `default`" in told
    assert rotated.returncode == 0, rotated.stderr
    assert len((tmp_path / "keys/log.key").read_text().split()) == 2
    assert "there is no superadmin key" not in done.stderr
    # It served, with the keys that were made before.
    assert '"status":"ok"' in done.stdout
    assert (tmp_path / "keys/admin.key").exists()
    assert not (tmp_path / ".sluice/first-start.json").exists()


def _test_of_a_copy(port: int, name: str) -> str:
    """The page's commands, for a copy of the database of this name. Before the service is killed,
    it has looked at its checkpoint store."""
    script = commands("deploy/README.md", "test a backup").replace("…", "secret")
    script = script.replace("sluice_restored", f"{name}_copy").replace("//sluice:", f"//{name}:")
    script = script.replace("@db/", f"@127.0.0.1:{port}/").replace("8799", str(free_port()))
    looked = "until grep -q 'has lost the checkpoints' copy.log; do sleep 0.1; done\n"
    script = script.replace("kill $COPY", f"{looked}kill $COPY")
    # A second tenant, whose log is signed within seconds.
    verified = 'sluice verify --database "$SLUICE_DATABASE_URL" --log "$TENANT" "$@"'
    signed = f"until {verified} >/dev/null 2>&1; do sleep 0.2; done\n"
    service = re.findall(r"--url (\S+)", script)[0]
    second = f"sluice tenants create acme --url {service} --key-file keys/superadmin.key\n"
    alone = 'sluice verify --database "$SLUICE_DATABASE_URL" --log default --key log-keys/now.pub'
    script = script.replace("set --\n", f"{second}{alone} > alone.txt || true\nset --\n")
    script = script.replace("  sluice v", f"  {signed}  sluice v")
    program = rf"{quote(sys.executable)} -m deploy.command \1"
    return re.sub(r"\bsluice (control|wait|tenants|log-key|verify)", program, script)


@pytest.mark.deep(stands_in="test_the_documented_settings_of_a_control_api_exist")
def test_the_documented_balancer_asks_only_ready_replicas(tmp_path: Path) -> None:
    page = (ROOT / "deploy/README.md").read_text()
    (config,) = re.findall(r"```caddyfile\n(https://control\.example.*?)```", page, re.DOTALL)
    caddy, trusted, port = need("caddy"), authority("guide"), free_port()
    (tmp_path / "ca.pem").write_bytes(trusted.path.read_bytes())
    pair = trusted.issue("127.0.0.1")
    (tmp_path / "balancer.pem").write_bytes(pair.certificate.read_bytes())
    (tmp_path / "balancer-key.pem").write_bytes(pair.key.read_bytes())
    with ExitStack() as stack:
        for number, ready in ((1, False), (2, True)):
            replica = stack.enter_context(_replica(ready=ready))
            config = config.replace(f"control-{number}.internal:8700", f"127.0.0.1:{replica}")
        config = config.replace("control.example:8700", f"127.0.0.1:{port}")
        (tmp_path / "Caddyfile").write_text("{\n\tadmin off\n\tauto_https off\n}\n" + config)
        process = stack.enter_context(
            subprocess.Popen([caddy, "run"], cwd=tmp_path, stderr=subprocess.DEVNULL)
        )
        stack.callback(process.terminate)
        ask = f"curl -sf --cacert ca.pem https://127.0.0.1:{port}/v1/any"
        until("it serves", lambda: paste(ask, tmp_path, environ()).returncode == 0)
        time.sleep(3)  # longer than a health check's interval: both have been asked
        answers = [paste(ask, tmp_path, environ()).stdout for _ in range(8)]
    assert answers == ["ready: True"] * 8


@contextmanager
def _replica(*, ready: bool) -> Iterator[int]:
    """The port of a server by TLS that is ready or not, and says so in every answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"ready: {ready}".encode()
            self.send_response(200 if ready or self.path != "/health/ready" else 503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = (
        authority("guide").server("127.0.0.1").wrap_socket(server.socket, server_side=True)
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.deep(stands_in="test_the_documented_settings_of_a_control_api_exist")
def test_a_database_is_dumped_and_restored(
    tmp_path: Path, postgres_server: postgres.Server, migrated_url: str
) -> None:
    """By the page's role for backups; not by the owner, whom row-level security binds too."""
    if not postgres_server.can_dump():
        pytest.skip("no pg_dump here: this PostgreSQL came without it")
    name, backup = migrated_url.rpartition("/")[2], f"backup_{secrets.token_hex(6)}"
    copy = f"{name}_restored"
    environment = _as_superuser(migrated_url, Path(postgres_server.binaries))
    row = "INSERT INTO first_accesses (tenant_id, agent_role, source_id, first_ts)"
    postgres_server.execute(postgres.unbound(migrated_url), f"{row} VALUES ('t', 'r', 's', 1)")
    script = commands("deploy/README.md", "dump and restore")
    script = script.replace("…", environment["PGPASSWORD"]).replace("sluice_owner", postgres.OWNER)
    script = script.replace("sluice_backup", backup).replace("sluice_restored", copy)
    script = script.replace("sluice.dump sluice)", f"sluice.dump {name})")
    done = paste(script, tmp_path, environment)
    # As the page says of the owner: refused, or told to hide rows, without any.
    as_owner = f"pg_dump -U {postgres.OWNER} -t first_accesses --data-only"
    refused = paste(f"{as_owner} {name}", tmp_path, environment)
    hidden = paste(f"{as_owner} --enable-row-security --inserts {name}", tmp_path, environment)
    owner = postgres.owned(migrated_url)
    postgres_server.execute(owner, "ALTER TABLE first_accesses NO FORCE ROW LEVEL SECURITY")
    opened = paste(f"pg_dump -U {postgres.OWNER} -t first_accesses {name}", tmp_path, environment)
    postgres_server.execute(owner, "ALTER TABLE first_accesses FORCE ROW LEVEL SECURITY")
    held = (
        "SELECT count(*), bool_and(relforcerowsecurity) FROM pg_class WHERE relrowsecurity",
        "SELECT count(*) FROM first_accesses",
        "SELECT pg_get_userbyid(relowner), relacl FROM pg_class WHERE relname = 'first_accesses'",
    )
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        original = postgres.unbound(migrated_url)
        before, after = (
            postgres_server.execute(url, *held) for url in (original, original.replace(name, copy))
        )
    finally:
        for each in (f"DROP DATABASE {copy} WITH (FORCE)", f"DROP ROLE {backup}"):
            paste(f'psql -c "{each}"', tmp_path, environment)
    assert before == after
    forced, rows, _ = before.splitlines()
    assert (forced.endswith("|t"), rows) == (True, "1")
    assert "query would be affected by row-level security policy" in refused.stderr
    assert (hidden.returncode, "INSERT INTO" in hidden.stdout) == (0, False), hidden.stderr
    # What was switched off for the dump stays so where it is restored.
    assert opened.returncode == 0, opened.stderr
    assert "ENABLE ROW LEVEL SECURITY" in opened.stdout
    assert "FORCE ROW LEVEL SECURITY" not in opened.stdout


def _as_superuser(url: str, programs: Path) -> dict[str, str]:
    """The environment in which `psql` is the superuser, and finds `programs` first."""
    server = urlsplit(url)
    return environ(
        PATH=f"{programs}:{os.environ['PATH']}",
        PGHOST="127.0.0.1",
        PGPORT=str(server.port),
        PGUSER=postgres.SUPERUSER,
        PGPASSWORD=str(server.password),
        PGDATABASE="postgres",
    )
