"""`sluice up` from first to last: three processes, the topology of production on one machine.

The source and the control API first; then what the sidecar needs is made through the control API;
then the sidecar. Stopped the other way round, so that the sidecar's last records are still taken.
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
from deploy.local.ports import Taken, settle
from deploy.local.processes import Family, ProcessFailed, StopAsked
from deploy.local.provision import FirstStart, Locked, provision
from deploy.local.samples import seed
from deploy.local.settings import UnusableSettings, UpSettings, read

PATIENCE = 60.0


class NotInstalled(Exception):
    """the sample data source is not installed: pip install 'sluice[demo]', or `make run`"""


class InUse(Exception):
    """another `sluice up` has the data directory"""


def up(options: Mapping[str, str | None], *, free_ports: bool = False) -> int:
    """Runs until Ctrl-C. 0 when all was drained, 1 for a failure, 2 for unusable settings."""
    try:
        settings = read(options, os.environ, free_ports=free_ports)
        if importlib.util.find_spec("chromadb") is None:
            raise NotInstalled(NotInstalled.__doc__)
        with _only_one(settings.data_dir):
            return _run(settle(settings))
    except UnusableSettings as problem:
        return _say(problem, code=2)
    except (NotInstalled, Taken, InUse, OSError) as problem:
        return _say(problem, code=1)


def _run(settings: UpSettings) -> int:
    code = 0
    with Family(settings.data_dir / "logs") as family:
        try:
            _start(family, settings)
            family.watch()
        except StopAsked:
            print("\ndraining", flush=True)
        except (ProcessFailed, Locked, CallRefused, OSError) as problem:
            # An answer that did not come has its cause in the child that should have given it.
            code = _say(f"{family.ended() or problem}\nstopping the rest", code=1)
    if family.undrained:
        return _say(f"killed, not drained in time: {', '.join(family.undrained)}", code=1)
    print("stopped", flush=True)
    return code


def _start(family: Family, settings: UpSettings) -> None:
    print(f"starting; logs are in {family.logs}", flush=True)
    source, control, decides = (
        Calls(str(address))
        for address in (settings.chroma_listen, settings.control_listen, settings.sidecar_listen)
    )
    family.start("sample data source", _chroma(settings), _environ(), drain_seconds=5)
    # At its first start it says the new keys on standard output; we show them, no log keeps them.
    control_api = _module("control_api")
    family.start("control API", control_api, _control(settings), drain_seconds=20, secretive=True)
    _await(family, "sample data source", lambda: source.answers("/api/v2/heartbeat"))
    _await(family, "control API", lambda: control.answers("/health/ready"))
    if made := seed(source):
        print(f"  {made} sample collections made", flush=True)
    first = FirstStart.read(settings.data_dir)
    key = provision(settings.control_listen, first, settings.data_dir)
    file = str(sidecar.write(settings))
    # The port it listens on is in the file, whoever chose it.
    theirs = _environ("SLUICE_SIDECAR_", "SLUICE_LOG_", but=("SLUICE_SIDECAR_LISTEN",))
    family.start("sidecar", _module("sidecar", "--config", file), theirs, drain_seconds=30)
    _await(family, "sidecar", lambda: decides.answers("/health/ready"))
    terminal = sys.stdout.isatty()
    data_dir = settings.data_dir.absolute()
    keys = welcome.shown_keys(key, first) if terminal else welcome.hidden_keys(data_dir, first)
    print(welcome.text(settings, keys, _policies()), flush=True)


def _await(family: Family, name: str, ready: Callable[[], bool]) -> None:
    began = time.monotonic()
    family.wait(ready, f"the {name} is ready", PATIENCE)
    print(f"  {name} ready after {time.monotonic() - began:.1f} s", flush=True)


def _module(name: str, *arguments: str) -> list[str]:
    # `-P`: a folder named like one of our packages, where the command is typed, is not the package.
    return [sys.executable, "-P", "-m", name, *arguments]


def _chroma(settings: UpSettings) -> list[str]:
    program = str(Path(sysconfig.get_path("scripts"), "chroma"))
    host, port = settings.chroma_listen
    place = ["--host", host, "--port", str(port)]
    return [program, "run", "--path", str(settings.data_dir / "chroma"), *place]


def _control(settings: UpSettings) -> dict[str, str]:
    # An operator's own key and address are for `sluice agents` and its like.
    others = ("SLUICE_SIDECAR_", "SLUICE_UP_", "SLUICE_URL", "SLUICE_KEY_FILE", "SLUICE_API_KEY")
    return _environ("SLUICE_", but=others) | {
        "SLUICE_DATA_DIR": str(settings.data_dir),
        "SLUICE_CONTROL_LISTEN": str(settings.control_listen),
        # The samples belong to a trial: the control API by itself loads none.
        "SLUICE_POLICY_DIR": _policies(),
    }


def _environ(*ours: str, but: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment, and of Sluice's own variables only what begins with one of `ours`: no child
    is told the secrets of another."""

    def told(name: str) -> bool:
        if name.startswith("SLUICE_"):
            return name.startswith(ours) and not name.startswith(but)
        return True

    return {name: value for name, value in os.environ.items() if told(name)}


def _policies() -> str:
    """Where the control API finds its policy files: where it is told to, or in its package."""
    if given := os.environ.get("SLUICE_POLICY_DIR"):
        return given
    package = importlib.util.find_spec("policies")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "definitions")


@contextlib.contextmanager
def _only_one(data_dir: Path) -> Iterator[None]:
    """Holds the data directory; a second `sluice up` on it would start a second writer."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (data_dir / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(
                f"another `sluice up` runs on `{data_dir}`: give this one its own with --data-dir"
            ) from None
        yield


def _say(problem: object, *, code: int) -> int:
    print(problem, file=sys.stderr, flush=True)
    return code
