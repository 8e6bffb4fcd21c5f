"""How the launcher watches and stops its children, and what it says when one does not get ready."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from deploy.local import up
from deploy.local.ports import hold_ports
from deploy.local.processes import ChildProcesses
from deploy.local.provision import FirstStart
from deploy.local.settings import read
from tests.architecture.tree import ROOT
from tests.deploy.launcher import gone, paste
from tests.support.control_api import POLICIES, ControlApi, asked, running_control_api
from tests.support.waiting import until

LAUNCHER = """
import sys
from pathlib import Path
from deploy.local.processes import ChildProcesses, ProcessFailed

def child(text):
    return [sys.executable, "-c", f"import time; print({text!r}, flush=True); time.sleep(60)"]

with ChildProcesses(Path(sys.argv[1])) as children:
    children.start("slow", child("the disk is full"), {}, 1)
    children.start("other", child("all is well"), {}, 1)
    try:
        children.wait_ready("slow", lambda: False, 2)
    except ProcessFailed as error:
        print(error)
"""


def test_a_child_that_is_not_ready_in_time_is_quoted(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "the slow was not ready within 2 s" in done.stdout
    assert "the disk is full" in done.stdout
    assert "all is well" not in done.stdout


WATCHING = """
import sys
from pathlib import Path
from deploy.local.processes import ChildProcesses, ProcessFailed, StopRequested

with ChildProcesses(Path(sys.argv[1])) as children:
    for name in ("first", "second"):
        children.start(name, ["/bin/sh", "-c", "echo $$; exec sleep 60"], {}, 10)
    try:
        children.watch()
    except StopRequested:
        print("asked to stop")
    except ProcessFailed as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("target", "number", "told"),
    [
        ("launcher", signal.SIGINT, "asked to stop"),
        ("launcher", signal.SIGTERM, "asked to stop"),
        ("launcher", signal.SIGKILL, ""),
        ("second", signal.SIGKILL, "the second ended by SIGKILL"),
    ],
)
def test_no_child_outlives_the_launcher_and_one_that_dies_is_named(
    tmp_path: Path, target: str, number: signal.Signals, told: str
) -> None:
    command = [sys.executable, "-c", WATCHING, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launcher:
        logs = {name: tmp_path / f"{name}.log" for name in ("first", "second")}
        until("both run", lambda: all(each.exists() and each.read_text() for each in logs.values()))
        pids = {name: int(log.read_text()) for name, log in logs.items()}
        children = [psutil.Process(pid) for pid in pids.values()]
        os.kill(pids.get(target, launcher.pid), number)
        said, _ = launcher.communicate(timeout=30)
    assert told in said
    assert gone(children)


SEQUENCE = """
import os, sys
from pathlib import Path
from deploy.local import up
from deploy.local.ports import hold_ports
from deploy.local.settings import read
from deploy.local.processes import StopRequested

def start(children, held):
    code = "import sys, time; print(sys.argv[2], flush=True); time.sleep(float(sys.argv[1]))"
    warning = '{"level": "error", "message": "a fault in a file"}'
    for name, seconds, line in (("first", 60, "runs"), ("second", sys.argv[2], warning)):
        children.start(name, [sys.executable, "-c", code, str(seconds), line], {}, 5)
    print(*(each.process.pid for each in children._children), flush=True)
    if sys.argv[3] == "in the middle":
        children.wait_ready("second", lambda: False, 60)

up._start = start
settings = read({"data_dir": sys.argv[1]}, {}, free_ports=True)
with hold_ports(settings) as held:
    sys.exit(up._run(held))
"""


@pytest.mark.parametrize(
    ("seconds", "when", "code"),
    [(60, "in the middle", 0), (60, "while it runs", 0), (0.3, "while it runs", 1)],
)
def test_a_failed_start_stops_every_child_and_reports_the_cause(
    seconds: float, when: str, code: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SEQUENCE, str(tmp_path), str(seconds), when]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        children = [psutil.Process(int(pid)) for pid in launcher.stdout.readline().split()]
        told = launcher.stderr.readline()
        if not code:
            launcher.send_signal(signal.SIGINT)
        said, problem = launcher.communicate(timeout=30)
    assert launcher.returncode == code
    assert told == "second: error: a fault in a file\n"
    assert said.endswith("stopped\n")
    if code:
        assert "the second ended with exit code 0" in problem
        assert str(tmp_path / "logs" / "second.log") in problem
    assert gone(children)


def test_no_key_is_shown_without_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last step of a start, without the children that it waits for."""
    first = FirstStart("default", "slc_admin", "slc_superadmin")
    for name, value in (
        ("_await", None), ("seed", 0), ("provision", "slc_agent"), ("_sign_in_link", None)
    ):  # fmt: skip
        monkeypatch.setattr(up, name, lambda *_, value=value: value)
    monkeypatch.setattr(FirstStart, "read", lambda _: first)
    monkeypatch.setattr(ChildProcesses, "start", lambda *_, **_more: None)
    settings = read({"data_dir": str(tmp_path)}, {}, free_ports=True)
    with hold_ports(settings) as held:
        vars(up)["_start"](ChildProcesses(tmp_path / "logs"), held)
    said = capsys.readouterr().out
    assert str(tmp_path / "agent.key") in said
    assert "slc_" not in said


TAKEN = """
import socket, sys
from deploy.local import up
from deploy.local.ports import HeldPorts, hold_ports
from deploy.local.processes import ChildProcesses
from deploy.local.settings import read

foreign = []
release, start = HeldPorts.release, ChildProcesses.start

def released_and_taken(self, *names):
    release(self, *names)
    for name in names:
        if name == sys.argv[2]:
            foreign.append(socket.socket())
            foreign[-1].bind(self.settings.addresses()[name])
            if sys.argv[4] == "listens":
                foreign[-1].listen()

HeldPorts.release = released_and_taken
ChildProcesses.start = lambda self, name, *_, drain_seconds, **more: start(
    self, name, ["/bin/sh", "-c", sys.argv[3]], {}, drain_seconds
)
settings = read({"data_dir": sys.argv[1]}, {}, free_ports=True)
with hold_ports(settings, by_make=True) as held:
    sys.exit(up._run(held))
"""


@pytest.mark.parametrize(
    ("child", "other"), [("exec sleep 60", "listens"), ("exit 0", "has bound it")]
)
def test_a_port_that_another_server_took_meanwhile_is_reported_with_a_remedy(
    tmp_path: Path, child: str, other: str
) -> None:
    """The other server has the port when the child starts: whatever it answers, it is not ours."""
    command = [sys.executable, "-c", TAKEN, str(tmp_path), "chroma_listen", child, other]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "the sample data source can't listen on `127.0.0.1:" in done.stderr
    assert "make run ARGS=--free-ports" in done.stderr
    assert "ready after" not in done.stdout


STUBBORN = """
import sys
from pathlib import Path
from deploy.local import up
from deploy.local.ports import hold_ports
from deploy.local.settings import read

def start(children, held):
    stays = "trap '' TERM; echo runs; sleep 60"
    children.start("sidecar", ["/bin/sh", "-c", stays], {}, 0)
    children.wait_ready("sidecar", lambda: (children.logs / "sidecar.log").read_text(), 60)
    print("runs", flush=True)

up._start = start
settings = read({"data_dir": sys.argv[1]}, {}, free_ports=True)
with hold_ports(settings) as held:
    sys.exit(up._run(held))
"""


def test_a_child_that_must_be_killed_at_ctrl_c_is_named_without_a_failure(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STUBBORN, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "runs\n"
        launcher.send_signal(signal.SIGINT)
        said, problem = launcher.communicate(timeout=30)
    assert launcher.returncode == 0, problem
    assert problem == ""
    assert "the sidecar had not drained yet and was killed" in said
    assert said.endswith("\nstopped\n")


KEYLESS = """
import sys
from pathlib import Path
from deploy.local import up
from deploy.local.ports import hold_ports
from deploy.local.processes import ChildProcesses
from deploy.local.provision import FirstStart
from deploy.local.settings import read

start = ChildProcesses.start
drains = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
ChildProcesses.start = lambda self, name, _, environ, drain_seconds, **more: start(
    self, name, drains, environ, drain_seconds
)
up._await, up.seed, up.provision = lambda *_: None, lambda _: 0, lambda *_: "slc_agent"
FirstStart.read = lambda _: FirstStart("default", "slc_admin", None)
settings = read({"data_dir": sys.argv[1]}, {}, free_ports=True)
with hold_ports(settings) as held:
    sys.exit(up._run(held))
"""


def test_sigterm_drains_every_child_and_none_has_the_operators_key(tmp_path: Path) -> None:
    """With children that do nothing but drain, and without a control API."""
    operators = {"SLUICE_API_KEY": "operator-key", "SLUICE_KEY_FILE": "a", "SLUICE_URL": "http://b"}
    command = [sys.executable, "-c", KEYLESS, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | operators, stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        while "Paste into another terminal" not in launcher.stdout.readline():
            assert launcher.poll() is None
        children = psutil.Process(launcher.pid).children()
        given = [child.environ().keys() for child in children]
        launcher.send_signal(signal.SIGTERM)
        said, _ = launcher.communicate(timeout=30)
    assert [names & operators.keys() for names in given] == [set()] * 3
    assert (launcher.returncode, said.endswith("\ndraining\nstopped\n")) == (0, True)
    assert gone(children)


STARTS = """
import sys
from deploy.local import up
from deploy.local.ports import hold_ports
from deploy.local.processes import ChildProcesses
from deploy.local.settings import read
from policies.ground.process.api_client import ControlApiClient

start = ChildProcesses.start
drains = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
ChildProcesses.start = lambda self, name, *_, drain_seconds, **more: start(
    self, name, drains, {}, drain_seconds
)
up._await, up.seed = lambda *_: None, lambda _: 0
up._connection = lambda _, key=None: ControlApiClient(sys.argv[2], key)
settings = read({"data_dir": sys.argv[1]}, {}, free_ports=True)
for _ in range(2):
    with hold_ports(settings) as held:
        print(f"ended with {up._run(held)}", flush=True)
    (settings.data_dir / "first-start.json").unlink(missing_ok=True)
"""


def test_the_next_start_uses_what_the_first_one_made_and_ctrl_c_drains_both(
    tmp_path: Path,
) -> None:
    """With a control API of the test's, and children that do nothing but drain."""
    policies = POLICIES.replace("agent_role: support", "agent_role: support_assistant")
    with running_control_api(tmp_path / "api", policies=policies) as api:
        _check_starts(api, tmp_path)


def _check_starts(api: ControlApi, folder: Path) -> None:
    keys = {"tenant_id": "t", "admin_key": api.admin_key, "superadmin_key": None}
    (folder / "first-start.json").write_text(json.dumps(keys))
    command = [sys.executable, "-c", STARTS, str(folder), f"http://127.0.0.1:{api.port}"]
    kept = [folder / name for name in ("agent.key", "up.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        said, made = "", []
        for line in launcher.stdout:
            said += line
            if line.startswith("Paste into another terminal"):
                made.append([each.read_text() for each in kept])
                launcher.send_signal(signal.SIGINT)
    assert said.count("\nstopped\nended with 0\n") == 2
    assert made[0] == made[1]
    for name in ("up.json", "sidecar.key", "agent.key", "sidecar.yaml"):
        assert (folder / name).stat().st_mode & 0o077 == 0, name
    key = made[0][0]
    assert not any(each in said for each in (key, api.admin_key))
    # The key and the agent are in force.
    assert api.admin("GET", "/v1/agents/agt_support")["status"] == "approved"
    # The sidecar's key speaks for that agent alone.
    [key_of_sidecar] = [each for each in api.admin("GET", "/v1/keys") if each["scope"] == "sidecar"]
    assert key_of_sidecar["agent_ids"] == ["agt_support"]
    # So does the agent's.
    bound = {each["scope"]: each["bound_agent_id"] for each in api.admin("GET", "/v1/keys")}
    assert bound["evaluate"] == "agt_support"
    body = asked(agent_id="agt_support", agent_role="support_assistant")
    assert api.call("POST", "/v1/context/evaluate", body, key=key).status == 200
    # So are the commands to paste. The control API decides in the place of the sidecar.
    for decision in ("ALLOW", "DENY"):
        command = re.findall(rf"(?m)^# {decision}\n(.+)$", said)[-1]
        here = re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{api.port}", command)
        assert json.loads(paste(here).stdout)["decision"] == decision
