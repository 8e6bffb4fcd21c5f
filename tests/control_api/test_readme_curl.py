"""The READMEs' commands work as they stand there, and none of the table's operations is missing."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from control_api.edge.router import Router
from control_api.routes import ROUTES
from control_api.settings import read
from tests.architecture.tree import ROOT
from tests.control_api.console.reader import Visitor
from tests.support.certificates import authority
from tests.support.control_api import SUPERADMIN, ControlApi
from tests.support.documents import SHELL, blocks, paste, put
from tests.support.documents import commands as commands_of
from tests.support.ports import free_port

STAND_IN = Path(__file__).with_name("curl.py")
OPERATIONS = "control_api/OPERATIONS.md"
GUARDED = {route.name for route in ROUTES if route.scopes is not None}


def commands() -> str:
    return "\n".join(each.text for each in blocks(OPERATIONS) if each.language in SHELL)


@pytest.fixture(params=["curl", "stand-in"])
def real(request: pytest.FixtureRequest) -> str:
    """The real `curl`; where none is installed, and once anyway, what stands in for it."""
    found = shutil.which("curl") if request.param == "curl" else None
    return found or ""


PICKED = ("policy", "impact", "key", "event", "session", "hold", "rule", "tenant")
RECORDS = """
curl() {
  printf '%s\\037' "$@" >> "$ASKED_FOR"
  printf '\\036' >> "$ASKED_FOR"
  echo "$ANSWER"
}
"""


def test_each_command_calls_an_operation_with_its_fields(tmp_path: Path) -> None:
    """Without a service: a path and its method, and the members of the query and the body."""
    answer = {f"{name}_id": "x" for name in PICKED} | {"version": "1-1"}
    script = RECORDS.replace("$ASKED_FOR", "$ASKED_FOR") + commands()
    environment = {
        "PATH": os.environ["PATH"],
        "ANSWER": json.dumps(answer, separators=(",", ":")),
        "ASKED_FOR": str(tmp_path / "asked"),
        **{name: name for name in ("SLUICE", "KEY", "SUPERADMIN")},
    }
    bash = ["bash", "-euo", "pipefail", "-c", script]
    subprocess.run(bash, env=environment, check=True, capture_output=True)
    router, shown = Router(ROUTES), set[str]()
    for command in (tmp_path / "asked").read_text().split("\x1e")[:-1]:
        arguments = command.split("\x1f")
        given = dict(itertools.pairwise(arguments))
        (url,) = [each for each in arguments if each.startswith("SLUICE/")]
        body = given.get("--json")
        path, _, query = url.removeprefix("SLUICE").partition("?")
        method = given.get("-X") or ("GET" if body is None else "POST")
        compiled, fields = router.find(method, path)
        members = {} if body is None else json.loads(body)
        compiled.route.request_type.read({**dict(parse_qsl(query)), **members, **fields})
        shown.add(compiled.name)
    assert shown == GUARDED


@pytest.mark.deep(stands_in="test_each_command_calls_an_operation_with_its_fields")
def test_each_command_is_answered_and_each_operation_is_shown(
    fresh: ControlApi, tmp_path: Path, real: str
) -> None:
    assert asked_by_commands(fresh, tmp_path, real) == GUARDED
    fresh.verified()


def asked_by_commands(api: ControlApi, directory: Path, real: str) -> set[str]:
    """Run them; the operations that were asked for, all of them answered well."""
    asked = directory / "asked"
    Visitor(api).sign_in(api.admin_key)  # for the commands about who is signed in
    before = directory / "bin"
    before.mkdir()
    shim = before / "curl"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P "{STAND_IN}" "$@"\n')
    shim.chmod(0o755)
    environment = {
        "PATH": f"{before}:{os.environ['PATH']}",
        "CURL_REAL": real,
        "CURL_LOG": str(asked),
        "SLUICE": f"http://127.0.0.1:{api.port}",
        "KEY": api.admin_key,
        "SUPERADMIN": SUPERADMIN,
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands()],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=600,  # a process for each command
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-600:], done.stderr)
    router = Router(ROUTES)
    shown = set()
    for line in asked.read_text().splitlines():
        method, url, status = line.split(" ")
        # What was just decided has no checkpoint yet: the README asks again.
        assert int(status) < 400 or (status == "409" and "/v1/audit/proof/" in url), line
        compiled, _ = router.find(method, urlsplit(url).path)
        shown.add(compiled.name)
    return shown


@pytest.mark.parametrize("page", ["control_api/README.md", "deploy/README.md"])
def test_a_script_waits_until_every_sidecar_has_a_change(
    fresh: ControlApi, tmp_path: Path, page: str
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    policy = {
        "name": "loans",
        "agent_role": "loans",
        "allowed_sources": ["contracts"],
        "denied_sources": [],
        "max_sensitivity": "low",
    }
    created = fresh.admin("POST", "/v1/policies", policy)
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    environ = {
        "PATH": os.environ["PATH"],
        "SLUICE": f"http://127.0.0.1:{fresh.port}",
        "ADMIN": fresh.admin_key,
        "A": f"X-API-Key: {fresh.admin_key}",
        "ID": created["policy_id"],
        "REVISION": "1",
    }
    script = commands_of(page, "wait for a change")
    done = paste(f'{script}\necho "revision $REVISION"', tmp_path, environ)
    assert done.returncode == 0, done.stderr
    assert re.search(r"revision [1-9]\d*$", done.stdout)


def test_the_issuers_of_the_readme_are_a_setting_that_is_read(tmp_path: Path) -> None:
    script = commands_of("control_api/README.md", "issuers")
    done = paste(f'{script}\nprintf %s "$SLUICE_ENROL_ISSUERS"', tmp_path, {})
    files = "/var/run/secrets/kubernetes.io/serviceaccount"
    here = done.stdout.replace(files, str(tmp_path))
    (tmp_path / "ca.crt").write_bytes(authority("issuers").path.read_bytes())
    (tmp_path / "token").write_text("token")
    found = read({"SLUICE_ENROL_ISSUERS": here})
    assert [each.tenant_id for each in found.enrol_issuers] == ["default", "ten_acme"]


@pytest.mark.deep(stands_in="test_each_command_calls_an_operation_with_its_fields")
def test_the_readme_s_first_commands_serve_and_decide(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    command = f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n'
    put(tmp_path / "bin", "sluice", command)
    address = f"127.0.0.1:{free_port()}"
    script = commands_of("control_api/README.md", "serve and decide")
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "SLUICE_CONTROL_LISTEN": address,
    }
    done = paste(script.replace("127.0.0.1:8700", address), tmp_path, environ)
    assert done.returncode == 0, done.stderr
    lines = [each for each in done.stdout.splitlines() if each.startswith(("{", "["))]
    *_, decided, listed = (json.loads(each) for each in lines)
    assert decided["decision"] == "ALLOW"
    assert [each["event_id"] for each in listed] == [decided["event_id"]]
