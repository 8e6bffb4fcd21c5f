"""An installed wheel, in an environment that has no checkout."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from deploy.command import MODULES
from policies.ground.distribution import how_to_install, install_command
from tests.deploy.launcher import environ, gone, paste, up
from tests.deploy.package.distribution import (
    OUTSIDE,
    ROOT,
    other_pythons,
)
from tests.support.documents import commands
from tests.support.documents import paste as run_commands
from tests.support.waiting import until

SPREAD = ("policies", "sidecar", "control_api", "deploy")


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python.parent / "sluice"), *arguments],
        cwd=cwd,
        env=environ(**OUTSIDE),
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_generic_name_can_be_imported(complete: Path, tmp_path: Path) -> None:
    code = f"""
import importlib.util, sluice
print([name for name in {SPREAD} if importlib.util.find_spec(name)])
"""
    answer = subprocess.check_output([complete, "-c", code], cwd=tmp_path, env=environ(**OUTSIDE))
    assert answer.decode().strip() == "[]"


def test_packages_of_the_same_names_neither_hide_ours_nor_are_hidden(
    complete: Path, tmp_path: Path
) -> None:
    for name in SPREAD:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('somebody else')\n")
    # As in an agent's environment: the user's packages are on the path, and in the current folder.
    answer = subprocess.run(
        [str(complete.parent / "sluice"), "sidecar", "--example"],
        cwd=tmp_path,
        env=environ(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "# The settings of a sidecar" in answer.stdout
    code = "import sidecar"
    theirs = subprocess.run(
        [complete, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert theirs.stderr == "somebody else\n"


def test_the_installed_command_prints_a_sidecar_s_settings_as_documented(
    complete: Path, tmp_path: Path
) -> None:
    *_, pip, run = commands("deploy/README.md", "install for a sidecar").splitlines()
    (packages,) = complete.parents[1].glob("lib/python3*/site-packages")
    (about,) = packages.glob("sluice_governance-*.dist-info/METADATA")
    (extras,) = re.findall(r"\.whl\[(.*)\]", pip)
    assert set(extras.split(",")) <= {*re.findall(r"(?m)^Provides-Extra: (.*)$", about.read_text())}
    installed = run.replace("/opt/sluice/bin/sluice", f'"{complete.parent / "sluice"}"')
    done = run_commands(installed, tmp_path, environ(**OUTSIDE))
    assert done.returncode == 0, done.stderr
    assert "\nlisten: 127.0.0.1:8710\n" in (tmp_path / "sidecar.yaml").read_text()


WHAT_UP_TAKES = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from deploy.local.samples import policy_folder
from deploy.module_command import module_command
from deploy.local.settings import read
from deploy.local.welcome import hidden_keys, text
from control_api.this_program import this_program
data = Path(sys.argv[2])
print(policy_folder({}, data), *module_command("sidecar", "--example"), sep="\\n")
print("a worker", *this_program(), sep="\\n")
print(text(read({"data_dir": str(data)}, {}), hidden_keys(data, None), "", ""))
"""


def test_up_takes_a_copy_of_the_installed_samples_and_starts_the_installed_services(
    complete: Path, tmp_path: Path
) -> None:
    (packages,) = complete.parents[1].glob("lib/python3*/site-packages/sluice/lib")

    def told(*command: object) -> str:
        outside = environ(**OUTSIDE)
        return subprocess.check_output([*map(str, command)], cwd=tmp_path, env=outside, text=True)

    lines = told(complete, "-c", WHAT_UP_TAKES, packages, tmp_path).splitlines()
    at = lines.index("a worker")
    folder, *sidecar = lines[:at]
    assert folder == str(tmp_path / "policies")
    assert list(Path(folder).rglob("*.yaml"))
    assert str(packages) in sidecar
    assert "# The settings of a sidecar" in told(*sidecar)
    # A service of several workers starts each of them in the same way.
    worker, printed = lines[at + 1 : lines.index("", at)], "\n".join(lines[at:])
    assert worker[-2:] == [str(packages), "control_api"]
    # The commands to paste run this Python, in spite of the space in its path.
    queries = re.findall(r"(?m)^# (?:ALLOW|DENY): .*\n(.+)$", printed)
    assert [shlex.split(each)[:2] for each in queries] == [[str(complete), "-c"]] * 2


INIT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from deploy.init import run
run._make_keys = lambda _: 0  # the control API's, and another process
sys.exit(run.init(sys.argv[2:], Path("/opt/sluice/bin/sluice")))
"""


def test_the_installed_command_writes_the_units_as_documented(
    complete: Path, tmp_path: Path
) -> None:
    *_, pip, written = commands("deploy/README.md", "systemd").splitlines()
    assert pip == "/opt/sluice/bin/" + install_command("server,sidecar")
    program, noun, *words = written.split()
    assert (program, noun, words.pop()) == ("/opt/sluice/bin/sluice", "init", "/")
    (packages,) = complete.parents[1].glob("lib/python3*/site-packages/sluice/lib")
    command = [str(complete), "-c", INIT, str(packages), *words, str(tmp_path / "host")]
    done = subprocess.run(command, cwd=tmp_path, env=environ(**OUTSIDE), check=False)
    assert done.returncode == 0
    for name in ("sluice-control.service", "sluice-sidecar@.service"):
        assert (tmp_path / "host/etc/systemd/system" / name).is_file()


@pytest.mark.deep(
    stands_in="test_up_takes_a_copy_of_the_installed_samples_and_starts_the_installed_services"
)
def test_the_commands_that_up_prints_work(complete: Path, tmp_path: Path) -> None:
    program = [str(complete.parent / "sluice")]
    data = tmp_path / "data"
    with up(data, program=program, cwd=tmp_path, **OUTSIDE) as started:
        started.until_printed("Paste into another terminal")
        assert "warning" not in started.printed
        assert f"policies     {data / 'policies'}   edit one" in started.printed
        assert list((data / "policies").rglob("*.yaml"))
        allowed = paste(started.command("ALLOW: "), tmp_path, **OUTSIDE)
        assert "returned within 30 days" in allowed.stdout, allowed.stderr
        assert paste(started.command("DENY"), tmp_path, **OUTSIDE).returncode != 0
        children = started.children()
        for child in children:
            assert "PYTHONPATH" not in {key for key, text in child.environ().items() if text}
        assert started.interrupt() == 0
        assert gone(children)


@pytest.mark.deep(
    stands_in="test_up_takes_a_copy_of_the_installed_samples_and_starts_the_installed_services"
)
def test_workers_start_from_the_wheel_too(
    complete: Path, tmp_path: Path, migrated_url: str
) -> None:
    settings = {
        "SLUICE_DATA_DIR": str(tmp_path / "data"),
        "SLUICE_DATABASE_URL": migrated_url,
        "SLUICE_CONTROL_LISTEN": "127.0.0.1:0",
        "SLUICE_WORKERS": "2",
    }
    output = tmp_path / "output"
    with output.open("wb") as file:
        service = subprocess.Popen(
            [complete.parent / "sluice", "control"],
            cwd=tmp_path,
            env=environ(**(OUTSIDE | settings)),
            stdout=file,
            stderr=file,
        )
    try:
        # The supervisor says so once all its workers serve.
        until(
            "the service listens, or has ended",
            lambda: "listens on" in output.read_text() or service.poll() is not None,
        )
        assert "listens on" in output.read_text(), output.read_text()
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.wait()


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("sidecar", "--example"), "sidecar"),
        (("doctor", "--config", "x"), "sidecar"),
        (("control",), "server"),
        (("migrate",), "server"),
        (("up",), "demo"),
    ],
)
def test_a_command_without_its_extra_names_what_to_install(
    bare: Path, tmp_path: Path, arguments: tuple[str, ...], extra: str
) -> None:
    answer = run(bare, *arguments, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.count("\n") == 1
    assert answer.stderr.endswith(f"; {how_to_install(extra)}\n")


def canonical(name: str) -> str:
    """The form of a distribution's name that PEP 503 compares."""
    return re.sub("[-_.]+", "-", name).lower()


def test_an_extra_is_recognised_by_the_modules_of_its_distributions() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    provided = packages_distributions()
    for extra in ("sidecar", "server"):
        asked = config["project"]["optional-dependencies"][extra]
        expected = {canonical(re.split(r"[\[>=<]", each)[0]) for each in asked}
        found = {canonical(provided[name][0]) for name in MODULES[extra]}
        assert found == expected, extra


@pytest.mark.deep(stands_in="test_packages_of_the_same_names_neither_hide_ours_nor_are_hidden")
def test_other_pythons_run_the_command(wheel: Path, tmp_path: Path) -> None:
    pythons = dict(other_pythons())
    if not pythons:
        pytest.skip("no other Python that Sluice supports was found on the PATH or below `~`")
    for version, program in pythons.items():
        python = tmp_path / version / "bin" / "python"
        subprocess.run([program, "-m", "venv", str(tmp_path / version)], check=True)
        # Its own pip: this environment's may be too old for a later Python.
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*command, str(wheel)], check=True)
        assert run(python, "--version", cwd=tmp_path).stdout.startswith("sluice ")
        assert run(python, "--help", cwd=tmp_path).stdout.startswith("usage: sluice")
        assert install_command("server") in run(python, "control", cwd=tmp_path).stderr
