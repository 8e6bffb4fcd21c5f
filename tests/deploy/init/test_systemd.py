"""`sluice init --target systemd`: what it writes, and that units and next steps work together."""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path

import pytest

from control_api.security.console_settings import ConsoleAddress
from control_api.tenants.bootstrap import fresh_keys, write_keys
from deploy.init import run, systemd
from policies.ground.addresses import ListenAddress
from policies.ground.keys import make_key
from sidecar.config.file import read as read_sidecar
from tests.deploy.init.unit import Unit
from tests.deploy.launcher import ROOT, environ
from tests.servers import of_system
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE, until

UNITS = ("sluice-control.service", "sluice-sidecar@.service")
# Not this checkout's, which may lie in a folder that units hide. The tests never run it.
PROGRAM = "/opt/sluice/bin/sluice"
# Everything that is written, and what it may be read by.
MODES = {
    "etc/systemd/system/sluice-control.service": 0o644,
    "etc/systemd/system/sluice-sidecar@.service": 0o644,
    "etc/sluice/control.env": 0o600,
    "etc/sluice/sidecars/agent/sidecar.yaml": 0o644,
    "etc/sluice/keys/log.key": 0o600,
    "etc/sluice/keys/admin.key": 0o600,
    "etc/sluice/keys/superadmin.key": 0o600,
}


def init(folder: Path, program: str = PROGRAM) -> int:
    """What `sluice init` of an installation at `program` does. Returns its exit code."""
    return run.init(["--target", "systemd", "--dir", str(folder)], Path(program))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `sluice init` writes. Tests copy it, and leave it alone."""
    folder = tmp_path_factory.mktemp("root")
    # Neither a lax umask adds rights, nor would a strict one take the units from systemd's tools.
    old = os.umask(0)
    try:
        assert init(folder) == 0
    finally:
        os.umask(old)
    return folder


def test_files_have_the_modes_that_they_need(root: Path) -> None:
    found = {
        str(path.relative_to(root)): path.stat().st_mode & 0o777
        for path in root.rglob("*")
        if path.is_file()
    }
    assert found == MODES
    assert (root / "etc/sluice/keys").stat().st_mode & 0o777 == 0o700


def test_files_that_are_there_are_kept_and_no_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[list[str]] = []

    def make_keys(place: Path) -> int:
        """Without another process."""
        made.append(write_keys(place, fresh_keys(os.urandom)))
        return 0

    monkeypatch.setattr(run, "_make_keys", make_keys)
    folder, trap = tmp_path / "root", tmp_path / "trap"
    every = systemd.files(Path(PROGRAM))
    assert init(folder) == 0
    assert capsys.readouterr().out.count("wrote ") == len(every)
    edited, missing, link = (folder / each.path for each in every[:3])
    edited.write_text("edited")
    missing.unlink()
    link.unlink()
    link.symlink_to(trap)
    kept, lost = (folder / systemd.KEYS / f"{name}.key" for name in ("log", "admin"))
    key = kept.read_bytes()
    lost.unlink()
    assert init(folder) == 0
    printed = capsys.readouterr().out
    for each in every:
        path = folder / each.path
        assert f"{'wrote' if path == missing else 'kept '} {path}\n" in printed
    assert systemd.next_steps(folder, Path(PROGRAM)) in printed
    assert (edited.read_text(), missing.read_text()) == ("edited", every[1].content)
    assert (kept.read_bytes(), made[1:]) == (key, [["admin.key"]])
    assert link.is_symlink()
    assert not trap.exists()


def test_the_next_steps_make_the_keys_that_the_sidecar_reads(root: Path, tmp_path: Path) -> None:
    steps = systemd.next_steps(Path("/"), Path(PROGRAM))
    made = {}
    for line in steps.splitlines():
        if line.startswith(PROGRAM):
            noun, *words = shlex.split(line)[1:]
            parser = argparse.ArgumentParser()
            import_module(f"deploy.commands.client.{noun}").add_arguments(parser)
            options = parser.parse_args(words)
            if noun == "keys":
                made[options.scope] = options.out
    unit = (systemd.TEMPLATES / UNITS[1]).read_text().replace("%i", "agent")
    read = dict(re.findall(r"^LoadCredential=(\S+):(\S+)$", unit, re.MULTILINE))
    assert read == {"sidecar.key": made["sidecar"], "agent.key": made["evaluate"]}
    # The units run the services, and find what was written.
    folder, keys = tmp_path / "root", tmp_path / "root/run/credentials" / UNITS[1]
    shutil.copytree(root, folder)
    control, sidecar = Unit(folder, UNITS[0]), Unit(folder, UNITS[1], "agent")
    assert control.keys["ExecStart"] == [f"{PROGRAM} control"]
    for each in (*control.keys["EnvironmentFile"], *control.keys["LoadCredential"]):
        assert (folder / each.rpartition(":")[2].removeprefix("/")).is_file()
    keys.mkdir(parents=True)
    for name in read:
        (keys / name).touch(0o600)
        (keys / name).write_text(make_key(os.urandom(32)))
    command = f"{PROGRAM} sidecar --config "
    (config,) = (each.removeprefix(command) for each in sidecar.keys["ExecStart"])
    told = shlex.split(" ".join(sidecar.keys["Environment"]))
    file = folder / config.removeprefix("/")
    settings = read_sidecar(file, dict(each.split("=", 1) for each in told), "host")
    assert settings.agent is not None
    assert f"--id {settings.agent.id} --role {settings.agent.role}\n" in steps
    state = folder / "var/lib" / sidecar.keys["StateDirectory"][0]
    assert (settings.cache, settings.spool.dir) == (state / "cache", state / "spool")
    assert settings.control == "http://127.0.0.1:8700"
    assert "SLUICE_CONTROL_LISTEN=127.0.0.1:8700\n" in systemd.files(Path(PROGRAM))[2].content


def test_the_last_step_prints_where_the_console_is(root: Path, tmp_path: Path) -> None:
    environment = (root / "etc/sluice/control.env").read_text()
    assert not re.search(r"(?m)^SLUICE_(CONSOLE_URL|TLS_CERTIFICATE)=", environment)
    (listen,) = re.findall(r"(?m)^SLUICE_CONTROL_LISTEN=(\S+)$", environment)
    made = ConsoleAddress.own(tmp_path, ListenAddress.parse(listen), os.urandom)
    steps = systemd.next_steps(Path("/"), Path(PROGRAM))
    (step,) = (line for line in steps.splitlines() if line.startswith("sed "))
    step = step.replace("/var/lib/sluice-control", str(tmp_path))
    shown = subprocess.run(step, shell=True, capture_output=True, text=True, check=True)
    assert shown.stdout == f"{made.url}/console\n"


@pytest.mark.deep(stands_in="test_files_that_are_there_are_kept_and_no_link_is_followed")
def test_a_second_run_replaces_nothing_and_adds_what_is_missing(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(root, folder)
    (folder / "etc/sluice/control.env").write_text("edited")
    (folder / "etc/sluice/keys/admin.key").unlink()
    # A link that somebody left there is neither followed nor replaced.
    unit, trap = folder / "etc/systemd/system/sluice-control.service", tmp_path / "trap"
    unit.unlink()
    unit.symlink_to(trap)
    before = (folder / "etc/sluice/keys/log.key").read_bytes()
    assert init(folder) == 0
    printed = capfd.readouterr().out
    assert f"kept  {unit}\n" in printed
    assert f"{folder}/etc/sluice/keys: admin.key created" in printed
    assert "the value of SLUICE_SUPERADMIN_KEY" in printed
    assert systemd.next_steps(folder, Path(PROGRAM)) in printed
    assert (folder / "etc/sluice/control.env").read_text() == "edited"
    assert (folder / "etc/sluice/keys/log.key").read_bytes() == before
    assert not trap.exists()


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").write_text("a file")
    assert init(tmp_path) == 1
    told = capsys.readouterr().err
    assert f"`{tmp_path}/etc/systemd/system/sluice-control.service` can't be" in told


@pytest.mark.parametrize(
    ("program", "part"),
    [
        ("/home" + "/me/venv/bin/sluice", "the units hide the folder"),
        ("/opt/a b/bin/sluice", "does not take literally"),
        ("/opt/100%/bin/sluice", "does not take literally"),
    ],
)
def test_a_program_that_units_cannot_run_is_refused_here_and_replaced_for_another_host(
    program: str,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(run, "_make_keys", lambda _: 0)
    assert init(tmp_path, program) == 0
    said = capsys.readouterr()
    assert f"{systemd.PROGRAM} agents register" in said.out
    assert f"so they name `{systemd.PROGRAM}`" in said.err
    unit = (tmp_path / "etc/systemd/system/sluice-control.service").read_text()
    assert f"ExecStart={systemd.PROGRAM} control" in unit
    # For this host: nothing is written, which `write` would do to the host itself.
    monkeypatch.setattr(run, "write", lambda *_: pytest.fail("writes to /"))
    assert init(Path("/"), program) == 2
    assert part in capsys.readouterr().err


def test_a_run_without_a_program_judges_the_one_of_this_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = "/home" + "/me/venv/bin"
    monkeypatch.setattr(sysconfig, "get_path", {"scripts": scripts}.__getitem__)
    monkeypatch.setattr(run, "_make_keys", lambda _: 0)
    assert run.init(["--target", "systemd", "--dir", str(tmp_path)]) == 0
    assert f"the folder of `{scripts}/sluice`" in capsys.readouterr().err


@pytest.fixture
def analyzed(tmp_path: Path) -> list[str]:
    """The units, with a program that exists: `verify` looks for it."""
    program = of_system("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here: Debian's package `systemd` brings it")
    for name in UNITS:
        text = (systemd.TEMPLATES / name).read_text().replace(systemd.PROGRAM, "/bin/true")
        (tmp_path / name).write_text(text)
    return [str(program), *(str(tmp_path / name) for name in UNITS)]


def test_the_units_are_valid(analyzed: list[str]) -> None:
    program, *units = analyzed
    answer = subprocess.run(
        [program, "verify", *units], capture_output=True, text=True, check=False
    )
    # Of other units on this machine, it reports too.
    said = [line for line in answer.stderr.splitlines() if "sluice" in line]
    assert (answer.returncode, said) == (0, [])


def test_the_units_expose_little(analyzed: list[str]) -> None:
    program, *units = analyzed
    for unit in units:
        command = [program, "security", "--offline=true", "--no-pager", unit]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if "offline" in answer.stderr:
            pytest.skip("this systemd-analyze can't judge a file; version 250 can")
        level = re.search(r"exposure level for \S+: (\d+\.\d)", answer.stdout)
        assert level, answer.stdout + answer.stderr
        assert float(level[1]) < 3.0, answer.stdout


def ready(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False


@pytest.mark.deep(stands_in="test_the_next_steps_make_the_keys_that_the_sidecar_reads")
def test_the_units_and_the_next_steps_lead_to_a_running_sidecar(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "root"
    shutil.copytree(root, folder)
    control_port, sidecar_port, source_port = free_port(), free_port(), free_port()
    # The only changes to what was written: ports that are free here.
    for name in ("control.env", "sidecars/agent/sidecar.yaml"):
        file = folder / "etc/sluice" / name
        text = file.read_text().replace("127.0.0.1:8700", f"127.0.0.1:{control_port}")
        text = text.replace("127.0.0.1:8710", f"127.0.0.1:{sidecar_port}")
        file.write_text(text.replace("127.0.0.1:18000", f"127.0.0.1:{source_port}"))
    control = Unit(folder, "sluice-control.service")
    running = [control.start(PROGRAM)]
    try:
        # The next command is pasted as soon as `systemctl` returns.
        control.wait_ready()
        paste_next_steps(folder, tmp_path, control_port)
        sidecar = Unit(folder, "sluice-sidecar@.service", "agent")
        running.append(sidecar.start(PROGRAM))
        sidecar.wait_ready()
        until("the sidecar is ready", lambda: ready(sidecar_port) or running[1].poll() is not None)
        assert ready(sidecar_port), sidecar.said()
        # Everything that the services wrote is below their state directories.
        assert (folder / "var/lib/sluice-control/sluice.db").exists()
        assert {each.name for each in (folder / "var/lib/sluice-sidecar/agent").iterdir()} == {
            "cache",
            "spool",
        }
        for service in reversed(running):
            service.send_signal(signal.SIGTERM)
            assert service.wait(PATIENCE) == 0
    finally:
        for service in running:
            service.kill()
            service.wait()


def paste_next_steps(folder: Path, tmp_path: Path, port: int) -> None:
    """Run the printed commands, in this checkout and in the folder that stands for `/`."""
    text = systemd.next_steps(Path("/"), Path(PROGRAM))
    lines = [line for line in text.splitlines() if line.startswith((PROGRAM, "export "))]
    assert len(lines) == 6
    script = "\n".join(["set -e", *lines]).replace("/etc/", f"{folder}/etc/")
    shim = tmp_path / "sluice"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m deploy.command "$@"\n')
    shim.chmod(0o755)
    answer = subprocess.run(
        ["bash", "-c", script.replace(PROGRAM, str(shim))],
        cwd=ROOT,
        env=environ(SLUICE_URL=f"http://127.0.0.1:{port}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
