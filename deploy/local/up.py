"""The sequence of `sluice up`: three processes, arranged on one machine as in production.

It starts the sample source and the control API, creates what the sidecar needs through the control
API, then starts the sidecar. It stops them in reverse order, so that the control API still receives
the sidecar's last records.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from deploy.local import sidecar, welcome
from deploy.local.calls import CallRefused, Calls
from deploy.local.ports import PortsTaken, choose_ports
from deploy.local.processes import ChildProcesses, ProcessFailed, StopRequested
from deploy.local.provision import AdminKeyMissing, FirstStart, provision
from deploy.local.samples import seed
from deploy.local.settings import UnusableSettings, UpSettings, read

READY_SECONDS = 60.0


class DemoNotInstalled(Exception):
    """the sample data source is not installed; run `pip install 'sluice[demo]'` or `make run`"""


class DataDirInUse(Exception):
    """another `sluice up` uses the data directory"""


def up(options: Mapping[str, str | None], *, free_ports: bool = False) -> int:
    """Run until Ctrl-C. Returns 0 if all has drained, 1 for a failure, 2 for unusable settings."""
    try:
        settings = read(options, os.environ, free_ports=free_ports)
        if importlib.util.find_spec("chromadb") is None:
            raise DemoNotInstalled(DemoNotInstalled.__doc__)
        with _lock(settings.data_dir):
            return _run(choose_ports(settings))
    except UnusableSettings as problem:
        return _fail(problem, code=2)
    except (DemoNotInstalled, PortsTaken, DataDirInUse, OSError) as problem:
        return _fail(problem, code=1)


def _run(settings: UpSettings) -> int:
    code = 0
    with ChildProcesses(settings.data_dir / "logs") as children:
        try:
            _start(children, settings)
            children.watch()
        except StopRequested:
            print("\ndraining", flush=True)
        except (ProcessFailed, AdminKeyMissing, CallRefused, OSError) as problem:
            # If a child has ended, that explains a request that failed.
            code = _fail(f"{children.ended() or problem}\nstopping the rest", code=1)
    if children.killed:
        return _fail(f"killed, because not drained in time: {', '.join(children.killed)}", code=1)
    print("stopped", flush=True)
    return code


def _start(children: ChildProcesses, settings: UpSettings) -> None:
    print(f"starting; logs are in {children.logs}", flush=True)
    source, control_api, sidecar_api = (
        Calls(str(address))
        for address in (settings.chroma_listen, settings.control_listen, settings.sidecar_listen)
    )
    children.start("sample data source", _chroma(settings), _environ(), drain_seconds=5)
    # The first start prints the new keys on standard output. `welcome` shows them; no log may.
    control = _module("control_api")
    children.start(
        "control API", control, _control(settings), drain_seconds=20, discard_output=True
    )
    _await(children, "sample data source", lambda: source.is_up("/api/v2/heartbeat"))
    _await(children, "control API", lambda: control_api.is_up("/health/ready"))
    if filled := seed(source):
        print(f"  {filled} sample collections made", flush=True)
    first = FirstStart.read(settings.data_dir)
    key = provision(settings.control_listen, first, settings.data_dir)
    file = str(sidecar.write(settings))
    # The file contains the chosen address; the variable would override it.
    environ = _environ("SLUICE_SIDECAR_", "SLUICE_LOG_", without=("SLUICE_SIDECAR_LISTEN",))
    children.start("sidecar", _module("sidecar", "--config", file), environ, drain_seconds=30)
    _await(children, "sidecar", lambda: sidecar_api.is_up("/health/ready"))
    # Output that goes to a file or another log must not contain keys (contract, section 6).
    terminal = sys.stdout.isatty()
    data_dir = settings.data_dir.absolute()
    keys = welcome.shown_keys(key, first) if terminal else welcome.hidden_keys(data_dir, first)
    print(welcome.text(settings, keys, _policies()), flush=True)


def _await(children: ChildProcesses, name: str, ready: Callable[[], bool]) -> None:
    began = time.monotonic()
    children.wait(ready, f"the {name} was not ready", READY_SECONDS)
    print(f"  {name} ready after {time.monotonic() - began:.1f} s", flush=True)


def _module(name: str, *arguments: str) -> list[str]:
    # `-P` keeps the current folder off the import path: a folder in it may be named like a package.
    return [sys.executable, "-P", "-m", name, *arguments]


def _chroma(settings: UpSettings) -> list[str]:
    program = str(Path(sysconfig.get_path("scripts"), "chroma"))
    host, port = settings.chroma_listen
    address = ["--host", host, "--port", str(port)]
    return [program, "run", "--path", str(settings.data_dir / "chroma"), *address]


def _control(settings: UpSettings) -> dict[str, str]:
    # The last three are for the operator's commands, such as `sluice agents`.
    others = ("SLUICE_SIDECAR_", "SLUICE_UP_", "SLUICE_URL", "SLUICE_KEY_FILE", "SLUICE_API_KEY")
    return _environ("SLUICE_", without=others) | {
        "SLUICE_DATA_DIR": str(settings.data_dir),
        "SLUICE_CONTROL_LISTEN": str(settings.control_listen),
        # The sample policies are for trying out: by default, the control API loads none.
        "SLUICE_POLICY_DIR": _policies(),
    }


def _environ(*prefixes: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment, but of Sluice's variables only those that begin with one of `prefixes` and
    none of `without`: no child gets another's secrets."""

    def included(name: str) -> bool:
        if name.startswith("SLUICE_"):
            return name.startswith(prefixes) and not name.startswith(without)
        return True

    return {name: value for name, value in os.environ.items() if included(name)}


def _policies() -> str:
    """The folder of policy files: `SLUICE_POLICY_DIR`, else the samples in the package."""
    if given := os.environ.get("SLUICE_POLICY_DIR"):
        return given
    package = importlib.util.find_spec("policies")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "definitions")


@contextlib.contextmanager
def _lock(data_dir: Path) -> Iterator[None]:
    """Lock the data directory: a second `sluice up` would start a second writer on its files."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (data_dir / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataDirInUse(
                f"another `sluice up` runs on `{data_dir}`; choose another with --data-dir"
            ) from None
        yield


def _fail(problem: object, *, code: int) -> int:
    print(problem, file=sys.stderr, flush=True)
    return code
