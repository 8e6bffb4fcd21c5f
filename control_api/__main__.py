"""The control API's command line. The one place that reads the environment, the clock and chance.

    python -m control_api             serve, also as `serve`
    python -m control_api migrate     bring the database's schema to head
    python -m control_api purge       remove now what retention would remove within the hour
    python -m control_api rotate-key  put a new signing key in place of the one that is there

Exit codes: 0 for a drained stop or a thing done, 1 for a failure, 2 for unusable settings or
arguments, a tenant that there is not among them.
"""

import asyncio
import logging
import os
import sys
import time
from argparse import Namespace
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvloop

from control_api import json_logging as journal
from control_api.command_line import parse
from control_api.log import log_key
from control_api.maintenance.bootstrap import FILE, FirstKeys
from control_api.maintenance.purge_command import purge
from control_api.security.random_buffer import RandomBuffer
from control_api.security.secret_file import UnusableFile
from control_api.security.tls_files import UnusableTls
from control_api.serve import Started, serve
from control_api.settings import Settings, read
from control_api.sockets import CannotListen
from control_api.store.connection_errors import DatabaseUnreachable
from control_api.store.errors import UnknownState
from control_api.store.migrate import migrate
from control_api.store.startup import open_with_retry
from control_api.store.url import UnusableDatabase
from control_api.workers.supervise import Supervisor, WorkersFailing
from control_api.workers.worker_args import WorkerArgs
from policies.ground.canonical import b64
from policies.ground.clock import Clock
from policies.ground.errors import NotFound
from policies.ground.listen_address import ListenAddress
from policies.ground.settings import SettingsError
from policies.ground.signing import KeyRing

_log = logging.getLogger("sluice")
# What an operator can mend; anything else is a fault of ours, and shows where it happened.
_OPERATORS = (
    UnusableDatabase,
    DatabaseUnreachable,
    UnusableFile,
    UnusableTls,
    CannotListen,
    UnknownState,
    NotFound,
    WorkersFailing,
)


def main(arguments: list[str]) -> int:
    place = _place(arguments)
    chosen = None if place else parse(arguments)
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    # Before anything is read, so that a complaint about a setting is a log line too.
    level, form = (os.environ.get(f"SLUICE_LOG_{name}") for name in ("LEVEL", "FORMAT"))
    journal.configure(level or "info", clock.now, form=form)
    journal.catch_all()
    try:
        settings = read(os.environ)
    except SettingsError as error:
        for complaint in error.complaints:
            _log.error("%s", complaint)
        return 2
    try:
        return _serve(place, settings, clock) if chosen is None else _run(chosen, settings, clock)
    except KeyboardInterrupt:
        return 1  # a command that was interrupted; the service itself drains instead
    except (*_OPERATORS, BaseExceptionGroup) as error:
        causes = _leaves(error)
        if not all(isinstance(cause, _OPERATORS) for cause in causes):
            raise
        for cause in causes:
            _log.critical("the control API ends: %s", cause)
        return 2 if all(isinstance(cause, NotFound) for cause in causes) else 1


def _place(arguments: list[str]) -> WorkerArgs | None:
    """A worker's place; only the supervisor starts one."""
    with suppress(ValueError):
        match arguments:
            case ["worker", place]:
                return WorkerArgs.from_argument(place)
    return None


def _run(chosen: Namespace, settings: Settings, clock: Clock) -> int:
    match chosen.command:
        case "migrate":
            asyncio.run(_migrate(settings, clock))
        case "rotate-key":
            told_of(log_key.rotate(settings.data_dir))
        case "purge":
            work = purge(settings, clock, RandomBuffer(os.urandom), chosen.tenant, print)
            return 0 if asyncio.run(work) else 1
        case _:
            return _serve(None, settings, clock)
    return 0


def _serve(place: WorkerArgs | None, settings: Settings, clock: Clock) -> int:
    """As one worker, as the supervisor of several, or as the only process."""
    if place is not None:
        told = partial(tell_worker, settings, place)
        uvloop.run(serve(settings, clock, RandomBuffer(os.urandom), told, place=place))
    elif settings.workers > 1:
        return Supervisor(settings, clock.monotonic).run(partial(tell_listening, settings))
    else:
        uvloop.run(serve(settings, clock, RandomBuffer(os.urandom), partial(tell, settings)))
    return 0


async def _migrate(settings: Settings, clock: Clock) -> None:
    """As the owner of the tables, where the environment says who that is."""
    owner = "SLUICE_MIGRATE_DATABASE_URL"
    given = os.environ.get(owner)
    await open_with_retry(
        partial(migrate, given or settings.database_url, settings.database_url),
        owner if given else settings.database_setting,
        settings.start_seconds,
        clock.monotonic,
        asyncio.Event(),
    )


def told_of(ring: KeyRing) -> None:
    """What a rotation came to, on standard output: public halves alone."""
    print(f"former key  {b64(ring.history[-1].former)}")
    print(f"new key     {b64(ring.signer.public)}")
    print("services sign with the new key once they are started again")


def _leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a task group's."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def tell(settings: Settings, started: Started) -> None:
    """What the operator should know, on standard output."""
    tell_keys(started.first_keys, settings.data_dir / FILE)
    tell_listening(settings, started.listen, started.metrics_listen)


def tell_worker(settings: Settings, place: WorkerArgs, started: Started) -> None:
    """A worker's: the supervisor waits for it, and tells the rest once all of them serve."""
    tell_keys(started.first_keys, settings.data_dir / FILE)
    os.write(place.ready, b"\n")
    os.close(place.ready)


def tell_keys(keys: FirstKeys | None, file: Path) -> None:
    """The keys of a first start, this once, and on a terminal alone: a container's output is kept
    by log collectors, which many may read. `file` holds them too."""
    if keys is not None:
        print(f"first start: tenant {keys.tenant_id}")
        if sys.stdout.isatty():
            print(f"  admin key       {keys.admin_key}")
            if keys.superadmin_key is not None:
                print(f"  superadmin key  {keys.superadmin_key}")
        print(f"  the keys are in {file}, which only its owner can read")
    sys.stdout.flush()


def tell_listening(
    settings: Settings, listen: ListenAddress, metrics_listen: ListenAddress | None
) -> None:
    scheme = "http" if settings.tls is None else "https"
    _log.info("control API listens on %s://%s", scheme, listen)
    if metrics_listen is not None:
        _log.info("metrics on http://%s/metrics", metrics_listen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
