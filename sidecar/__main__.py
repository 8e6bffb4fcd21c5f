"""`python -m sidecar --config FILE`: reads the arguments and the environment once, and serves.

`--check` only reads the settings and the key and certificate files that they name; `--example`
prints a settings file, complete or minimal. Neither opens a port or writes anything. Exit code 2
for unusable settings, 1 for a failure, 0 after a graceful stop (`CONTRACT.md`, Commands and exit
codes).
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import uvloop

from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.ground.log_line import FORMATS, LEVELS
from policies.ground.process import json_logging
from policies.ground.process.sockets import notify_ready
from policies.ground.settings import SettingsError
from sidecar.config.file import holds_password, read, read_variable
from sidecar.config.help import EXAMPLES, example, text
from sidecar.platform.malloc import return_large_buffers
from sidecar.serve import serve
from sidecar.settings.model import SidecarSettings
from sidecar.settings.ports import ports_of
from sidecar.spool.storage.disk import takes_new_files

log = logging.getLogger("sidecar")

# Prefer a clock that keeps running while the machine sleeps: a laptop that wakes up must not take
# yesterday's policy set for a fresh one.
_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.upstream is not None and arguments.example != "minimal":
        parser.error("--upstream: only with `--example minimal`")
    # Set up the log before reading the settings: it reports what is wrong with them.
    complaints = _set_up_log(os.environ)
    try:
        if arguments.example is not None:
            print(example(arguments.example, os.environ, arguments.upstream), end="")
            return 0
        settings = _read(arguments)
    except SettingsError as error:
        complaints += error.complaints
    else:
        if not complaints:
            where = arguments.config or arguments.config_env
            return _check(where, settings) if arguments.check else _serve(settings)
    for complaint in complaints:
        log.error("%s", complaint)
    return 2


def _read(arguments: argparse.Namespace) -> SidecarSettings:
    if arguments.config_env is not None:
        return read_variable(arguments.config_env, os.environ, socket.gethostname())
    return read(arguments.config, os.environ, socket.gethostname())


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        # Built here, on demand: the list of keys is read from source files.
        return (
            f"{super().format_help()}\nkeys of the settings file [default]; SLUICE_SIDECAR_<KEY> "
            "in the environment overrides one,\nwith `__` between levels. SLUICE_LOG_LEVEL is "
            f"{', '.join(LEVELS)} [info];\nSLUICE_LOG_FORMAT is {', '.join(FORMATS)} [text on a "
            f"terminal, json elsewhere].\n{text()}\n"
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sluice sidecar",
        description="Runs the sidecar of one agent.",
        usage="%(prog)s --config FILE [--check]\n       %(prog)s --config-env NAME [--check]\n"
        "       %(prog)s --example [minimal [--upstream URL]] > FILE",
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--config", type=Path, metavar="FILE", help="the settings file (YAML)")
    action.add_argument(
        "--config-env", metavar="NAME", help="the environment variable that holds the file's text"
    )
    action.add_argument(
        "--example",
        nargs="?",
        const="full",
        choices=EXAMPLES,
        help="print a settings file: a commented one with every key, or the `minimal` one, with "
        "the control API of SLUICE_URL and the authority of SLUICE_CA",
    )
    parser.add_argument(
        "--upstream",
        metavar="URL",
        help="the address of the data source in `--example minimal`",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the settings and the key and certificate files they name, and list the "
        "ports; exit code 0 or 2",
    )
    return parser


def _check(where: Path | str, settings: SidecarSettings) -> int:
    ports = list(ports_of(settings))
    listens = ", ".join(dict.fromkeys(str(port.listen) for port in ports))
    many = len(settings.sources)
    print(
        f"{where}: valid: sidecar `{settings.id}`, control API {settings.control}, "
        f"{many} source{'' if many == 1 else 's'}, would listen on {listens}"
    )
    for port in ports:
        print(f"  {port.listen}: {port.name}: {port.serves}")
    if isinstance(where, Path) and where.stat().st_mode & 0o044 and holds_password(where):
        print(
            f"{where}: warning: other users can read the password of Redis in it; "
            "`chmod go=` the file, or give the address in SLUICE_SIDECAR_REDIS",
            file=sys.stderr,
        )
    spool = settings.spool.dir
    if os.path.isdir(spool) and not takes_new_files(spool):  # noqa: PTH112  # raises nothing
        print(
            f"{where}: warning: this user can make no files in `spool.dir`, which is `{spool}`; "
            "a sidecar of this user would not start",
            file=sys.stderr,
        )
    return 0


def _set_up_log(environ: Mapping[str, str]) -> list[str]:
    """Set up logging by the two settings that both services share, `SLUICE_LOG_LEVEL` and
    `SLUICE_LOG_FORMAT`. Returns complaints about their values; empty if both are valid."""
    level = environ.get("SLUICE_LOG_LEVEL") or "info"
    log_format = environ.get("SLUICE_LOG_FORMAT") or None
    json_logging.configure("sidecar", level, _now, form=log_format)
    json_logging.catch_all("sidecar")
    complaints = []
    if level not in LEVELS:
        complaints.append(f"SLUICE_LOG_LEVEL: `{level}` is not one of {', '.join(LEVELS)}")
    if log_format is not None and log_format not in FORMATS:
        complaints.append(f"SLUICE_LOG_FORMAT: `{log_format}` is not one of {', '.join(FORMATS)}")
    return complaints


def _serve(settings: SidecarSettings) -> int:
    # Before any thread exists, and before the first large buffer makes glibc raise the threshold.
    return_large_buffers()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings))
    except (SluiceError, OSError, ExceptionGroup) as error:
        _log_failure(error)
        return 1
    return 0


def _log_failure(error: BaseException) -> None:
    """Log why the sidecar ends: in one line if an operator can fix the cause, otherwise with the
    traceback."""
    # A task group wraps the errors that ended it, and groups may be nested.
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _log_failure(each)
    elif isinstance(error, (SluiceError, OSError)):
        log.critical("the sidecar ends: %s", error)
    else:
        log.critical("the sidecar ends: a task died", exc_info=error)


async def _run(settings: SidecarSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        stop.set()
        # A second signal kills the process at once. The spool survives that.
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    announce = partial(notify_ready, os.environ.get("NOTIFY_SOCKET"))
    await serve(settings, Clock(_now, _monotonic), os.urandom, stop, announce)


def _now() -> int:
    return time.time_ns() // 1000


def _monotonic() -> float:
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


if __name__ == "__main__":
    sys.exit(main())
