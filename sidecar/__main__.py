"""`python -m sidecar --config FILE`: reads the arguments and the environment once, and serves.

Exit code 2 for unusable settings, 1 for a failure, 0 for a drained stop (contract, section 5).
"""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path

import uvloop

from policies.ground.clock import Clock
from policies.ground.errors import SluiceError
from policies.ground.settings import SettingsError
from sidecar.memory import give_back_large_buffers
from sidecar.serve import serve
from sidecar.settings import Settings
from sidecar.settings_file import read

log = logging.getLogger("sidecar")

LEVELS = ("debug", "info", "warning", "error")

# Where there is one, a clock that goes on while the machine sleeps: a laptop that wakes up must not
# take yesterday's policy set for a fresh one.
_BOOT = getattr(time, "CLOCK_BOOTTIME", None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sidecar", description="The sidecar.")
    parser.add_argument("--config", type=Path, required=True, help="the settings file (YAML)")
    arguments = parser.parse_args()
    give_back_large_buffers()
    complaints = _set_up_log(os.environ.get("SLUICE_LOG_LEVEL") or "info")
    try:
        settings = read(arguments.config, os.environ, socket.gethostname())
    except SettingsError as error:
        complaints += error.complaints
    else:
        if not complaints:
            return _serve(settings)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 2


def _set_up_log(level: str) -> list[str]:
    """Complaints about the level, which is the one setting that both services read."""
    known = level in LEVELS
    logging.basicConfig(
        level=level.upper() if known else "INFO",
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    return [] if known else [f"SLUICE_LOG_LEVEL: `{level}` is not one of {', '.join(LEVELS)}"]


def _serve(settings: Settings) -> int:
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings))
    except (SluiceError, OSError, ExceptionGroup) as error:
        _tell(error)
        return 1
    return 0


def _tell(error: BaseException) -> None:
    """What ended the sidecar: in a line where it is the operator's to mend, else with its trace."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _tell(each)
    elif isinstance(error, (SluiceError, OSError)):
        log.critical("the sidecar ends: %s", error)
    else:
        log.critical("the sidecar ends: a part of it died", exc_info=error)


async def _run(settings: Settings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told(number: signal.Signals) -> None:
        stop.set()
        # Told twice, it goes at once, as if killed: the spool is made for that.
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told, number)
    await serve(settings, Clock(_now, _monotonic), os.urandom, stop)


def _now() -> int:
    return time.time_ns() // 1000


def _monotonic() -> float:
    return time.monotonic() if _BOOT is None else time.clock_gettime(_BOOT)


if __name__ == "__main__":
    sys.exit(main())
