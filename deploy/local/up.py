"""Runs the sequence of `sluice up`: three processes on one machine, arranged as in production.
`--milvus` adds a second data source, which is read over gRPC, and `--postgres` one that is read
over PostgreSQL's protocol.

It starts the sample data sources and the control API, creates the sidecar's key and the agent
through the control API, and then starts the sidecar. It stops them in reverse order, so that the
control API still receives the sidecar's last records.

The sidecar's settings file is written at each start, in the form in which an operator would write
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploy.local import welcome
from deploy.local.listening import Listener, console_url, listener
from deploy.local.ports import HeldPorts, PortsTaken, hold_ports
from deploy.local.processes import ChildProcesses, ProcessFailed, StopRequested
from deploy.local.provision import (
    AGENT_ID,
    ROLE,
    AdminKeyMissing,
    FirstStart,
    provision,
    write_private,
)
from deploy.local.samples import (
    COLLECTIONS,
    POSTGRES_DATABASE,
    POSTGRES_LOGIN,
    RELATIONS,
    policy_folder,
    seed,
)
from deploy.local.settings import Address, UnusableSettings, UpSettings, read
from deploy.module_command import module_command
from policies.ground.process.api_client import ControlApiClient, RequestRefused, ServiceUnusable

ALIAS, MILVUS_ALIAS, POSTGRES_ALIAS = "kb", "vectors", "company"
POSTGRES_PASSWORD = "postgres.password"  # noqa: S105 - a file's name
"""The file in the data directory with the password of the sidecar's login."""
TEXT = """\
# `sluice up` writes this file at each start. Paths are relative to it.
id: sluice-up
control: http://{control}
key_file: sidecar.key
listen: "{listen}"
agent: {{id: {agent}, role: {role}, key_file: agent.key}}   # the agent behind port {port}
staleness_seconds: 30
spool: {{dir: spool, mode: durable, max_bytes: 1073741824}}
sources:
  - alias: {alias}
    kind: chroma
    upstream: http://{upstream}
    listen: "{source}"
    sensitivity: critical   # of everything that is not named below
    writes: deny
    defaults: {{user: someone-trying-sluice}}
    names:
{names}
"""
MILVUS_TEXT = """\
  - alias: {alias}   # gRPC and REST, which Milvus serves on one port
    kind: milvus
    upstream: http://{upstream}
    listen: "{source}"
    sensitivity: critical
    writes: deny
    defaults: {{user: someone-trying-sluice}}
    names:   # the same sources as in Chroma, so one policy is for both
{names}
"""
POSTGRES_TEXT = """\
  - alias: {alias}   # this kind is new, and not complete
    kind: postgres
    upstream: postgres://{upstream}/{database}
    login: {{user: {login}, password_file: {password_file}}}
    listen: "{source}"
    sensitivity: critical
    writes: deny
    defaults: {{user: someone-trying-sluice}}
    relations:
{relations}
"""


def write(settings: UpSettings) -> Path:
    """Write the sidecar's settings file, `<data dir>/sidecar.yaml`, and return its path."""
    path = settings.data_dir / "sidecar.yaml"
    text = TEXT.format(
        control=settings.control_listen,
        listen=settings.sidecar_listen,
        agent=AGENT_ID,
        role=ROLE,
        port=settings.source_listen.port,
        alias=ALIAS,
        upstream=settings.chroma_listen,
        source=settings.source_listen,
        names=_names(f"chroma://{ALIAS}/default_tenant/default_database"),
    )
    if settings.milvus_listen is not None:
        text += MILVUS_TEXT.format(
            alias=MILVUS_ALIAS,
            upstream=settings.milvus_listen,
            source=settings.milvus_source_listen,
            names=_names(f"milvus://{MILVUS_ALIAS}/default"),
        )
    if settings.postgres_listen is not None:
        text += POSTGRES_TEXT.format(
            alias=POSTGRES_ALIAS,
            upstream=settings.postgres_listen,
            database=POSTGRES_DATABASE,
            login=POSTGRES_LOGIN,
            password_file=POSTGRES_PASSWORD,
            source=settings.postgres_source_listen,
            relations="\n".join(
                f"      - {{match: {each.name}, source_id: {each.source_id}, "
                f"sensitivity: {each.sensitivity}}}"
                for each in RELATIONS
            ),
        )
    write_private(path, text)
    return path


def _names(database: str) -> str:
    """Return the lines that map the sample collections of a database to sources."""
    return "\n".join(
        f"      {database}/{each.name}: {{source_id: {each.name}, sensitivity: {each.sensitivity}}}"
        for each in COLLECTIONS
    )


READY_SECONDS = 60.0
PORTS = {
    "sample data source": ("chroma_listen",),
    "sample Milvus": ("milvus_listen",),
    "sample PostgreSQL": ("postgres_listen",),
    "control API": ("control_listen",),
    "sidecar": (
        "sidecar_listen",
        "source_listen",
        "milvus_source_listen",
        "postgres_source_listen",
    ),
}
"""The names of the address settings on which each child listens. The launcher asks the first one
whether the child is ready. Those that are None count for nothing."""
REQUEST_SECONDS = 10.0
"""The timeout of a readiness request, in seconds. A child that accepts the request and doesn't
respond delays Ctrl-C for that long."""


class DataDirInUse(Exception):
    """another `sluice up` uses the data directory"""


def up(
    options: Mapping[str, str | None],
    *,
    free_ports: bool = False,
    milvus: bool = False,
    postgres: bool = False,
) -> int:
    """Run Sluice until Ctrl-C. Returns 0 if Ctrl-C stopped it, 1 for a failure, 2 for unusable
    settings."""
    try:
        settings = read(
            options, os.environ, free_ports=free_ports, milvus=milvus, postgres=postgres
        )
        # Take the lock before the ports: if another launcher has both, the lock's error says more.
        by_make = "MAKELEVEL" in os.environ  # make sets it for what it runs
        with _lock(settings.data_dir), hold_ports(settings, by_make=by_make) as held:
            return _run(held)
    except UnusableSettings as problem:
        return _fail(problem, code=2)
    except (PortsTaken, DataDirInUse, OSError) as problem:
        return _fail(problem, code=1)


def _run(held: HeldPorts) -> int:
    code = 0
    with ChildProcesses(held.settings.data_dir / "logs") as children:
        try:
            _start(children, held)
            children.watch()
        except StopRequested:
            print("\ndraining", flush=True)
        except PortsTaken as problem:
            # It explains why a child has ended, or why another server's answer was refused.
            code = _fail(f"{problem}\nstopping the rest", code=1)
        except (ProcessFailed, AdminKeyMissing, ServiceUnusable, OSError) as problem:
            # If a child has ended, report that: it explains why a request failed.
            code = _fail(f"{children.ended() or problem}\nstopping the rest", code=1)
    for name in children.killed:
        print(f"the {name} had not drained yet and was killed; what it stored is kept")
    print("stopped", flush=True)
    return code


def _start(children: ChildProcesses, held: HeldPorts) -> None:
    settings = held.settings
    print(f"starting; logs are in {children.logs}", flush=True)
    # The sources and the control API don't need each other, so they start at the same time.
    held.release(*_ports(settings, "sample data source"))
    children.start("sample data source", _chroma(settings), _environ(), drain_seconds=5)
    if settings.milvus_listen is not None:
        held.release(*_ports(settings, "sample Milvus"))
        command = _milvus(settings.data_dir, settings.milvus_listen)
        children.start("sample Milvus", command, _environ(), drain_seconds=10)
    if settings.postgres_listen is not None:
        held.release(*_ports(settings, "sample PostgreSQL"))
        command = _postgres(settings.data_dir, settings.postgres_listen)
        children.start("sample PostgreSQL", command, _environ(), drain_seconds=10)
    held.release(*_ports(settings, "control API"))
    # The first start prints the new keys on standard output, which must not get into a log.
    # `welcome` shows the keys.
    control = module_command("control_api")
    children.start(
        "control API", control, _control(settings), drain_seconds=20, discard_output=True
    )
    _await(children, held, "sample data source", "/api/v2/heartbeat")
    if settings.milvus_listen is not None:
        # It listens once its collections are there, and answers no plain HTTP.
        _await(children, held, "sample Milvus", None)
    if settings.postgres_listen is not None:
        # As Milvus: it listens once its tables are there.
        _await(children, held, "sample PostgreSQL", None)
    _await(children, held, "control API", "/health/ready")
    # The sidecar can't start without its key, so everything that it needs is created first.
    if filled := seed(_connection(settings.chroma_listen)):
        print(f"  {filled} sample collections made", flush=True)
    first = FirstStart.read(settings.data_dir)
    control_api = _connection(settings.control_listen, first and first.admin_key)
    key = provision(control_api, first, settings.data_dir)
    file = str(write(settings))
    # The file contains the chosen address, which this variable would override.
    environ = _environ("SLUICE_SIDECAR_", "SLUICE_LOG_", without=("SLUICE_SIDECAR_LISTEN",))
    held.release(*_ports(settings, "sidecar"))
    children.start(
        "sidecar", module_command("sidecar", "--config", file), environ, drain_seconds=30
    )
    _await(children, held, "sidecar", "/health/ready")
    # Output that goes to a file or another log must not contain keys (`CONTRACT.md`, First start).
    terminal = sys.stdout.isatty()
    data_dir = settings.data_dir.absolute()
    keys = welcome.shown_keys(key, first) if terminal else welcome.hidden_keys(data_dir, first)
    policies = str(policy_folder(os.environ, settings.data_dir))
    link = _sign_in_link(settings, first) if terminal else None
    console = console_url(os.environ, settings.data_dir, settings.control_listen)
    shown = welcome.console(settings, console, link)
    own = bool(os.environ.get("SLUICE_POLICY_DIR"))
    print(welcome.text(settings, keys, policies, shown, own=own), flush=True)


def _sign_in_link(settings: UpSettings, first: FirstStart | None) -> str | None:
    """Return a link that signs a browser in to the console once. Returns None if there is no admin
    key, or if the console is switched off."""
    if first is None:
        return None
    try:
        connection = _connection(settings.control_listen, first.admin_key)
        made = connection.request("POST", "/v1/console/sign-in-links")
    except RequestRefused:
        return None
    url = str(made.body["url"])
    return f"http://{settings.control_listen}{url}" if url.startswith("/") else url


def _ports(settings: UpSettings, name: str) -> list[str]:
    """Return the names of the address settings on which the child listens in this run."""
    addresses = settings.addresses()
    return [port for port in PORTS[name] if port in addresses]


def _await(children: ChildProcesses, held: HeldPorts, name: str, path: str | None) -> None:
    """Wait until the child listens on all its ports and a GET of `path` at the first one, unless
    that is None, succeeds. Raises `PortsTaken` if another program has bound one of the ports."""
    addresses, ports = held.settings.addresses(), _ports(held.settings, name)
    connection = _connection(addresses[ports[0]])

    def ready() -> bool:
        # Before the request: another program may have bound the port between its release and the
        # child's start, and would answer as the child does, if it is another Sluice's.
        for port in ports:
            match listener(addresses[port], children.pid(name)):
                case Listener.ANOTHER:
                    raise held.taken(port)
                case Listener.NONE:
                    return False
                case Listener.OURS | Listener.UNKNOWN:
                    pass
        if path is None:
            return True
        try:
            connection.request("GET", path, seconds=REQUEST_SECONDS)
        except ServiceUnusable:
            return False  # it is still starting; `wait` gives up at its deadline
        return True

    began = time.monotonic()
    try:
        children.wait_ready(name, ready, READY_SECONDS)
    except ProcessFailed:
        ended = children.ended_names()
        held.check_free(*(port for each in ended for port in _ports(held.settings, each)))
        raise
    print(f"  {name} ready after {time.monotonic() - began:.1f} s", flush=True)


def _connection(address: Address, key: str | None = None) -> ControlApiClient:
    return ControlApiClient(f"http://{address}", key)


def _chroma(settings: UpSettings) -> list[str]:
    # From this Python's environment, which need not be on the PATH.
    program = str(Path(sysconfig.get_path("scripts"), "chroma"))
    host, port = settings.chroma_listen
    address = ["--host", host, "--port", str(port)]
    return [program, "run", "--path", str(settings.data_dir / "chroma"), *address]


def _milvus(data_dir: Path, listen: Address) -> list[str]:
    host, _, port = str(listen).rpartition(":")  # with the brackets of IPv6, which gRPC needs
    words = ["--data-dir", str(data_dir / "milvus"), "--host", host, "--port", port]
    return module_command("deploy.local.sample_milvus", *words)


def _postgres(data_dir: Path, listen: Address) -> list[str]:
    place = ["--host", listen.host, "--port", str(listen.port)]
    words = ["--password-file", str(data_dir / POSTGRES_PASSWORD), *place]
    return module_command("deploy.local.sample_postgres", *words)


def _control(settings: UpSettings) -> dict[str, str]:
    # The last three are for the operator's commands, such as `sluice agents`.
    others = ("SLUICE_SIDECAR_", "SLUICE_UP_", "SLUICE_URL", "SLUICE_KEY_FILE", "SLUICE_API_KEY")
    return _environ("SLUICE_", without=others) | {
        "SLUICE_DATA_DIR": str(settings.data_dir),
        "SLUICE_CONTROL_LISTEN": str(settings.control_listen),
        # By default, the control API loads no policies; the samples are for trying Sluice out.
        "SLUICE_POLICY_DIR": str(policy_folder(os.environ, settings.data_dir)),
    }


def _environ(*prefixes: str, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the environment for a child. Of the `SLUICE_` variables it contains only those that
    begin with one of `prefixes` and with none of `without`, so that no child gets another's
    secrets."""

    def included(name: str) -> bool:
        if name.startswith("SLUICE_"):
            return name.startswith(prefixes) and not name.startswith(without)
        return True

    return {name: value for name, value in os.environ.items() if included(name)}


@contextlib.contextmanager
def _lock(data_dir: Path) -> Iterator[None]:
    """Lock the data directory inside the `with` block, so that no second `sluice up` writes to its
    files. Raises `DataDirInUse` if another one holds the lock."""
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
