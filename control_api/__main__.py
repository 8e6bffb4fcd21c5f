"""The control API's command line, and the only place that reads the environment, the clock and the
system's random source.

    python -m control_api             serve, also as `serve`
    python -m control_api migrate     upgrade the database's schema
    python -m control_api purge       remove now what retention would remove within the hour
    python -m control_api rebuild-lists  make lists and counts anew from the log
    python -m control_api accept-incarnation  sign a log again that is behind its checkpoints
    python -m control_api rotate-key  replace the signing key
    python -m control_api make-keys   create the keys, in a directory or a Kubernetes Secret

Exit codes: 0 after a drained stop or a successful command, 1 after a failure, 2 for unusable
settings or arguments, such as an unknown tenant.

Each command imports what it needs: the service takes most of a second to import, which the
supervisor of several workers, `--help` or a complaint about the settings need not wait for.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from control_api.command_line import environ_of, parse
from control_api.settings import Settings, read
from control_api.settings_reader import ControlSettingsReader
from control_api.this_program import IMPACT_RUN
from control_api.worker_args import WorkerArgs
from policies.ground.addresses import ListenAddress
from policies.ground.canonical import b64
from policies.ground.clock import Clock
from policies.ground.core_form import CORE_FORM
from policies.ground.errors import NotFound
from policies.ground.ids import RandomBuffer
from policies.ground.process import json_logging
from policies.ground.process.secret_file import UnusableFile
from policies.ground.process.sockets import CannotListen, notify_ready
from policies.ground.process.tls_files import UnusableTls
from policies.ground.settings import SettingsError
from policies.ground.signing import KeyRing

if TYPE_CHECKING:
    from control_api.serve import Started
    from control_api.tenants.bootstrap import FirstKeys

_log = logging.getLogger("sluice")


def main(arguments: list[str]) -> int:
    clock = Clock(lambda: time.time_ns() // 1000, time.monotonic)
    if arguments == [IMPACT_RUN]:
        from control_api.policy.impact_process import main as run_impact

        return run_impact(clock, sys.stdin.buffer, sys.stdout.buffer)
    worker = _worker(arguments)
    chosen = None if worker else parse(arguments)
    # Before the settings are read, so that complaints about them are log lines too.
    level, log_format = (os.environ.get(f"SLUICE_LOG_{name}") for name in ("LEVEL", "FORMAT"))
    json_logging.configure("sluice", level or "info", clock.now, form=log_format)
    json_logging.catch_all("sluice")
    try:
        settings = read(os.environ if chosen is None else environ_of(chosen.command, os.environ))
    except SettingsError as error:
        for complaint in error.complaints:
            _log.error("%s", complaint)
        return 2
    try:
        return _serve(worker, settings, clock) if chosen is None else _run(chosen, settings, clock)
    except KeyboardInterrupt:
        return 1  # an interrupted command; the service itself drains on SIGINT
    except Exception as error:
        causes = _leaves(error)
        if not all(isinstance(cause, _operator_faults()) for cause in causes):
            raise
        for cause in causes:
            _log.critical("the control API ends: %s", cause)
        # Only an unknown tenant raises `NotFound` here: a wrong argument, not a failed command.
        return 2 if all(isinstance(cause, NotFound) for cause in causes) else 1


def _operator_faults() -> tuple[type[Exception], ...]:
    """Return the exception classes of faults that an operator can fix. They are reported in one
    line; anything else is a bug and gets a trace."""
    from control_api.store.errors import UnknownState
    from control_api.store.url import DatabaseUnreachable, UnusableDatabase
    from control_api.supervise import WorkersFailing
    from control_api.tenants.bootstrap import NoSecret

    of_database = (UnusableDatabase, DatabaseUnreachable, UnknownState)
    return (
        *of_database,
        UnusableFile,
        UnusableTls,
        CannotListen,
        NotFound,
        WorkersFailing,
        NoSecret,
    )


@contextmanager
def _loading() -> Iterator[None]:
    """Turn off the garbage collector during imports. What they create stays, and searching it for
    garbage again and again takes a fifth of the CPU time of a start."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _worker(arguments: list[str]) -> WorkerArgs | None:
    """Parse the arguments of a worker process, or return None if these are not a worker's. Only the
    supervisor passes such arguments: `--help` does not list them."""
    # If this fails, a person typed the arguments: `parse` then explains the mistake.
    with suppress(ValueError):
        match arguments:
            case ["worker", argument]:
                return WorkerArgs.from_argument(argument)
    return None


def _run(chosen: Namespace, settings: Settings, clock: Clock) -> int:
    match chosen.command:
        case "migrate":
            asyncio.run(_migrate(settings, clock, chosen.finish))
        case "rotate-key":
            from control_api.log import log_key

            if settings.keys_dir is not None:
                # What is mounted there can't be written, and the next start would read it again.
                raise UnusableFile(
                    "SLUICE_KEYS_DIR names the keys in use: unset it, rotate a copy of its "
                    "`log.key` in SLUICE_DATA_DIR, and put the new file back"
                )
            print_rotation(log_key.rotate(settings.data_dir))
        case "make-keys":
            _make_keys(chosen)
        case "purge":
            from control_api.purge import purge

            work = purge(settings, clock, RandomBuffer(os.urandom), chosen.tenant, print)
            return 0 if asyncio.run(work) else 1
        case "rebuild-lists":
            from control_api.log.commands import rebuild_lists

            work = rebuild_lists(settings, clock, RandomBuffer(os.urandom), chosen.tenant, print)
            return 0 if asyncio.run(work) else 1
        case "accept-incarnation":
            from control_api.log.commands import accept_incarnation

            names = (chosen.log, chosen.reason)
            work = accept_incarnation(settings, clock, RandomBuffer(os.urandom), *names, print)
            return 0 if asyncio.run(work) else 1
        case _:
            return _serve(None, settings, clock)
    return 0


def _serve(worker: WorkerArgs | None, settings: Settings, clock: Clock) -> int:
    """Serve as one worker, as the supervisor of several, or as the only process."""
    if worker is None and settings.workers > 1:
        from control_api.supervise import Supervisor

        return Supervisor(settings, clock.monotonic).run(partial(announce_listening, settings))
    with _loading():
        import uvloop

        from control_api.serve import serve
    announce = partial(announce_start, settings)
    if worker is not None:
        announce = partial(announce_worker, settings, worker)
    uvloop.run(serve(settings, clock, RandomBuffer(os.urandom), announce, worker=worker))
    return 0


async def _migrate(settings: Settings, clock: Clock, finish: bool) -> None:
    """Upgrade the schema, connected as the tables' owner if the environment names one."""
    from control_api.store.migrate import migrate
    from control_api.store.opening import open_with_retry
    from control_api.store.url import UnusableDatabase

    # The owner grants the service's role its privileges, so the migration gets both URLs.
    owner = "SLUICE_MIGRATE_DATABASE_URL"
    given = ControlSettingsReader(os.environ).secret("MIGRATE_DATABASE_URL")
    if settings.database_pooled and given is None:
        raise UnusableDatabase(
            f"{owner} must name PostgreSQL itself: a migration holds a lock of its session, which "
            "a pooler (SLUICE_DATABASE_POOLED) would give to another client"
        )
    done = await open_with_retry(
        partial(migrate, given or settings.database_url, settings.database_url, finish=finish),
        owner if given else settings.database_setting,
        settings.start_seconds,
        clock.monotonic,
        asyncio.Event(),
    )
    print(done)


def _make_keys(chosen: Namespace) -> None:
    """Create the keys of an installation in a directory or a Kubernetes Secret. Existing keys
    stay."""
    from control_api.tenants.bootstrap import Cluster, create, fresh_keys, write_keys

    keys = fresh_keys(os.urandom)
    if chosen.dir is not None:
        made = write_keys(chosen.dir, keys)
        print(f"{chosen.dir}: {', '.join(made) or 'nothing'} created")
        print(
            "the service reads log.key and admin.key there if SLUICE_KEYS_DIR names the directory; "
            "superadmin.key counts once SLUICE_SUPERADMIN_KEY_FILE names it, or its text is the "
            "value of SLUICE_SUPERADMIN_KEY"
        )
        return
    cluster = Cluster.of_pod(os.environ)
    created = asyncio.run(create(cluster, chosen.secret, keys))
    print(
        f"Secret {chosen.secret}: {'created' if created else 'exists, unchanged'}; its "
        "superadmin.key counts once SLUICE_SUPERADMIN_KEY has it, as the chart's pods do"
    )


def print_rotation(ring: KeyRing) -> None:
    """Print the former and the new public key of a rotation on standard output."""
    print(f"former key  {b64(ring.history[-1].former)}")
    print(f"new key     {b64(ring.signer.public)}")
    print("services sign with the new key after their next start")


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the single exceptions inside an exception group, as a task group raises it, or else
    the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def announce_start(settings: Settings, started: Started) -> None:
    from control_api.tenants.bootstrap import FILE

    print_keys(started.first_keys, settings.data_dir / FILE)
    announce_listening(settings, started.listen, started.metrics_listen)


def announce_worker(settings: Settings, worker: WorkerArgs, started: Started) -> None:
    """Tell the supervisor that this worker serves. The supervisor logs the addresses once all
    workers do."""
    from control_api.tenants.bootstrap import FILE

    print_keys(started.first_keys, settings.data_dir / FILE)
    # Any byte will do. End of file without one tells the supervisor that this worker died.
    os.write(worker.ready, b"\n")
    os.close(worker.ready)


def print_keys(keys: FirstKeys | None, file: Path) -> None:
    """Print the keys of a first start. If standard output is not a terminal, print only the file
    that holds them."""
    if keys is not None:
        print(f"first start: tenant {keys.tenant_id}")
        # Log collectors keep a container's output, and many people can read that.
        if sys.stdout.isatty():
            print(f"  admin key       {keys.admin_key}")
            if keys.superadmin_key is not None:
                print(f"  superadmin key  {keys.superadmin_key}")
        print(f"  the keys are in {file}, which only its owner can read")
    sys.stdout.flush()


def announce_listening(
    settings: Settings, listen: ListenAddress, metrics_listen: ListenAddress | None
) -> None:
    """Log the addresses that the service listens on, and tell systemd, which may wait for it."""
    scheme = "http" if settings.tls is None else "https"
    _log.info("the core is %s", CORE_FORM)
    _log.info("control API listens on %s://%s", scheme, listen)
    if metrics_listen is not None:
        _log.info("metrics on http://%s/metrics", metrics_listen)
    notify_ready(os.environ.get("NOTIFY_SOCKET"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
