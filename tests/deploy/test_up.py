"""`sluice up`: what a new user sees in the first minute, and that it leaves nothing behind."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.local.settings import ENVIRONMENT
from tests.deploy.launcher import ANYWHERE, ROOT, Launcher, gone, paste, sluice, up
from tests.support.documents import commands
from tests.support.waiting import until

STARTED = "Paste into another terminal"


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_the_next_start_uses_what_the_first_one_made_and_ctrl_c_drains_both"
)
def test_a_first_start_makes_keys_and_a_second_one_after_ctrl_c_reuses_them(tmp_path: Path) -> None:
    data = tmp_path / "a folder"
    with up(data) as first:
        first.until_printed(STARTED)
        keys = [first.key(name) for name in ("agent", "admin", "superadmin")]
        assert len(set(keys)) == 3
        # This output goes to a file, like a container's, so it shows where the keys are.
        assert not any(key in first.printed for key in keys)
        assert no_secret_in(command_lines(first.children()), keys)
        for log in (data / "logs").iterdir():
            assert not any(key in log.read_text() for key in keys), log
        assert_the_pasted_commands_do_what_they_say(first.command)
        assert_the_commands_of_the_sidecars_readme_are_answered(first, data)
        assert_only_the_owner_reads(data)
        children = first.children()
        assert len(children) >= 3
        assert first.interrupt() == 0
        assert "stopped" in first.printed
        assert gone(children)

    # The operator has removed the secrets. The second start creates nothing, so it needs none.
    (data / "first-start.json").unlink()
    kept = (data / "up.json").read_bytes()
    with up(data) as second:
        second.until_printed(STARTED)
        assert "collections made" not in second.printed
        assert second.key("agent") == keys[0]
        assert (data / "up.json").read_bytes() == kept
        assert "handbook" not in paste(second.command("DENY")).stdout
        assert paste(second.command("ALLOW")).returncode == 0
        assert second.interrupt() == 0


@pytest.mark.deep(
    stands_in="tests/deploy/test_welcome.py::test_the_sample_milvus_is_shown_if_it_runs"
)
def test_a_sample_milvus_is_judged_by_grpc_at_every_start(tmp_path: Path) -> None:
    for _ in range(2):
        with up(tmp_path / "data", "--milvus", "--free-ports", listen=()) as launcher:
            launcher.until_printed(STARTED)
            allowed = paste(launcher.command("ALLOW by gRPC: "))
            assert allowed.returncode == 0, allowed.stderr
            assert "returned within 30 days" in allowed.stdout
            denied = paste(launcher.command("DENY by gRPC: "))
            assert denied.returncode != 0
            # The text of the client's exception, below the traceback.
            raised = denied.stderr.rpartition("\ngrpc.")[2]
            assert "StatusCode.PERMISSION_DENIED" in raised, denied.stderr
            assert "source `payroll` is in `denied_sources` of policy `support_reads" in raised
            assert "4 812" not in denied.stdout + denied.stderr
            told = paste(launcher.command("EVENTS")).stdout
            assert "payroll" in told
            children = launcher.children()
            assert launcher.interrupt() == 0
            assert "was killed" not in launcher.printed
            assert gone(children)


@pytest.mark.deep(
    stands_in="tests/deploy/test_welcome.py::test_the_sample_postgres_is_shown_if_it_runs"
)
def test_a_sample_postgres_is_judged_by_statement_at_every_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for _ in range(2):
        with up(data, "--postgres", "--free-ports", listen=()) as launcher:
            launcher.until_printed(STARTED)
            assert (data / "postgres.password").read_text() not in launcher.printed
            assert (data / "postgres.password").stat().st_mode & 0o077 == 0
            allowed = paste(launcher.command("ALLOW by SQL: "))
            assert allowed.returncode == 0, allowed.stderr
            assert "The refund has not arrived yet" in allowed.stdout
            denied = paste(launcher.command("DENY by SQL: "))
            assert denied.returncode != 0
            assert (
                "source `payroll` is in `denied_sources` of policy `support_reads" in denied.stderr
            )
            assert "4812" not in denied.stdout + denied.stderr
            until(
                "both are in the log",
                lambda: (
                    {"tickets", "payroll"} <= set(paste(launcher.command("EVENTS")).stdout.split())
                ),
            )
            children = launcher.children()
            assert launcher.interrupt() == 0
            assert "was killed" not in launcher.printed
            assert gone(children)


def assert_the_pasted_commands_do_what_they_say(command: Callable[[str], str]) -> None:
    allowed = paste(command("ALLOW: "))
    assert allowed.returncode == 0, allowed.stderr
    assert "returned within 30 days" in allowed.stdout

    denied = paste(command("DENY: "))
    assert denied.returncode != 0
    assert "payroll" in denied.stderr
    assert "4 812" not in denied.stdout + denied.stderr

    assert json.loads(paste(command("ALLOW$")).stdout)["decision"] == "ALLOW"
    assert json.loads(paste(command("DENY$")).stdout)["decision"] == "DENY"

    verify = command("VERIFY")
    until("the events are in the log", lambda: json.loads(paste(verify).stdout)["events"] >= 4)
    verified = json.loads(paste(verify).stdout)
    assert "payroll" in paste(command("EVENTS")).stdout
    assert verified["valid"] is True
    assert verified["events"] >= 4


def assert_the_commands_of_the_sidecars_readme_are_answered(launcher: Launcher, data: Path) -> None:
    """The commands of `sidecar/README.md`, at the address of this sidecar."""
    listening = re.search(r"http://(\S+)   the sidecar", launcher.printed)
    assert listening

    def answer(asking: str) -> dict[str, Any]:
        script = commands("sidecar/README.md", f"{asking}, in the folder where `make run` runs")
        script = script.replace("127.0.0.1:8710", listening[1])
        script = script.replace(".sluice/agent.key", f"'{data}/agent.key'")
        return dict(json.loads(paste(script).stdout))

    decided = answer("ask a sidecar")
    assert decided["decision"] == "ALLOW", decided
    assert decided["policy_name"] == "support_reads_what_customers_may_know"
    mapped = answer("ask by AuthZEN")
    assert mapped["decision"] is True, mapped
    assert mapped["context"]["policy_name"] == "support_reads_what_customers_may_know"


def assert_only_the_owner_reads(data: Path) -> None:
    assert data.stat().st_mode & 0o077 == 0
    for name in ("first-start.json", "up.json", "sidecar.key", "agent.key", "sidecar.yaml"):
        assert (data / name).stat().st_mode & 0o077 == 0, name


def command_lines(processes: list[psutil.Process]) -> str:
    return " ".join(word for process in processes for word in process.cmdline())


def no_secret_in(text: str, keys: list[str]) -> bool:
    return "sidecar" in text and not any(key in text for key in keys)


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_sigterm_drains_every_child_and_none_has_the_operators_key"
)
def test_sigterm_drains_like_ctrl_c_and_no_child_has_the_operators_key(tmp_path: Path) -> None:
    operators = {"SLUICE_API_KEY": "operator-key", "SLUICE_KEY_FILE": "a", "SLUICE_URL": "http://b"}
    with up(tmp_path / "data", **operators) as launcher:
        launcher.until_printed(STARTED)
        children = launcher.children()
        for child in children:
            assert not operators.keys() & child.environ().keys()
        launcher.process.send_signal(signal.SIGTERM)
        assert launcher.process.wait(60) == 0
        assert gone(children)


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_a_failed_start_stops_every_child_and_reports_the_cause"
)
def test_ctrl_c_during_the_start_leaves_no_process(tmp_path: Path) -> None:
    with up(tmp_path / "data") as launcher:
        launcher.until_printed("sample data source ready")
        children = launcher.children()
        assert launcher.interrupt() == 0
        assert gone(children)


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_a_failed_start_stops_every_child_and_reports_the_cause"
)
def test_a_child_that_dies_stops_everything_and_is_named(tmp_path: Path) -> None:
    with up(tmp_path / "data") as launcher:
        launcher.until_printed(STARTED)
        children = launcher.children()
        sidecar = next(child for child in children if "sidecar" in child.cmdline())
        sidecar.kill()
        assert launcher.process.wait(60) == 1
        assert "the sidecar ended by SIGKILL" in launcher.printed
        assert str(tmp_path / "data" / "logs" / "sidecar.log") in launcher.printed
        assert gone(children)


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_a_failed_start_stops_every_child_and_reports_the_cause"
)
def test_a_fault_in_a_policy_file_shows_on_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    shutil.copytree(ROOT / "policies" / "definitions", folder)
    file = next((folder / "default").rglob("customer_support.yaml"))
    whole = file.read_text()
    with up(tmp_path / "data", SLUICE_POLICY_DIR=str(folder)) as launcher:
        launcher.until_printed(STARTED)
        file.write_text(whole.replace("max_sensitivity", "max_sensitivty"))
        launcher.until_printed("customer_support.yaml")
        launcher.until_printed("did you mean `max_sensitivity`?")
        told = [each for each in launcher.printed.splitlines() if file.name in each]
        assert all(line.startswith("control API: error: ") for line in told)
        assert launcher.interrupt() == 0


@pytest.mark.deep(
    stands_in="tests/deploy/test_processes.py::test_no_child_outlives_the_launcher_and_one_that_dies_is_named"
)
def test_a_killed_launcher_leaves_no_child(tmp_path: Path) -> None:
    with up(tmp_path / "data") as launcher:
        launcher.until_printed(STARTED)
        children = launcher.children()
        launcher.process.kill()
        assert gone(children)


def test_a_taken_port_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        answer = sluice(
            "up", "--data-dir", str(tmp_path / "data"), *ANYWHERE, "--control-listen", place
        )
    assert answer.returncode == 1
    assert re.search(rf"the control API can't listen on `{place}`: .*in use", answer.stderr)
    assert "--control-listen HOST:PORT or SLUICE_CONTROL_LISTEN" in answer.stderr
    assert not (tmp_path / "data" / "logs").exists()


def test_every_taken_port_is_named_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        both = (f"--source-listen={place}", f"--chroma-listen={place}")
        answer = sluice("up", f"--data-dir={tmp_path / 'data'}", *ANYWHERE, *both)
    assert answer.returncode == 1
    assert "--source-listen HOST:PORT or SLUICE_UP_SOURCE_LISTEN" in answer.stderr
    assert "--chroma-listen HOST:PORT or SLUICE_UP_CHROMA_LISTEN" in answer.stderr


@pytest.mark.deep(
    stands_in="tests/deploy/test_ports.py::test_free_ports_are_chosen_for_all_but_options"
)
def test_free_ports_avoid_taken_ones_except_named_ones(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        variables = dict.fromkeys(list(ENVIRONMENT.values())[1:], address)
        refused = sluice("up", "--data-dir", str(tmp_path / "data"), **variables)
        assert refused.returncode == 1
        assert "sluice up --free-ports" in refused.stderr
        named = sluice(
            "up", "--free-ports", "--control-listen", address, "--data-dir", str(tmp_path / "data")
        )
        assert named.returncode == 1
        assert named.stderr.count("can't listen on") == 1
        with up(tmp_path / "data", "--free-ports", listen=(), **variables) as launcher:
            launcher.until_printed(STARTED)
            assert address not in launcher.printed
            assert len({*re.findall(r"http://(127\.0\.0\.1:\d+)", launcher.printed)}) == 4
            assert launcher.interrupt() == 0


def test_every_unusable_setting_is_named_at_once(tmp_path: Path) -> None:
    answer = sluice(
        "up",
        f"--data-dir={tmp_path / 'data'}",
        "--control-listen=8700",
        "--milvus-listen=127.0.0.1:19530",
        "--postgres-listen=127.0.0.1:25432",
        SLUICE_UP_CHROMA_LISTEN="127.0.0.1:99999",
        SLUICE_UP_MILVUS_SOURCE_LISTEN="for the runs with --milvus",
    )
    assert answer.returncode == 2
    assert "--control-listen (SLUICE_CONTROL_LISTEN): `8700`" in answer.stderr
    assert "--chroma-listen (SLUICE_UP_CHROMA_LISTEN): `127.0.0.1:99999`" in answer.stderr
    assert "--milvus-listen is of use only with --milvus" in answer.stderr
    assert "--postgres-listen is of use only with --postgres" in answer.stderr
    assert len(answer.stderr.splitlines()) == 4
    assert not (tmp_path / "data").exists()


def test_a_data_directory_in_use_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with (data / "up.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = sluice("up", "--data-dir", str(data), *ANYWHERE)
    assert answer.returncode == 1
    assert f"another `sluice up` runs on `{data}`" in answer.stderr
