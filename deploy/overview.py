"""Lists the commands of `sluice`, grouped as `sluice --help` shows them, and says what each extra
of the distribution adds, and which of it is missing here. Imports none of it.

The tables of extras repeat `pyproject.toml` in the names of modules, since an installed Sluice has
no `pyproject.toml`; a test compares them.
"""

from __future__ import annotations

import difflib
from importlib.util import find_spec
from typing import NamedTuple

from policies.ground.distribution import how_to_install


class Command(NamedTuple):
    """One word after `sluice`."""

    name: str
    line: str
    becomes: tuple[str, ...] = ()
    """The module and first arguments of the service that replaces this process; empty if the
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
            Command("sessions", "list, show and revoke sessions"),
            Command("policies", "list, show, apply, delete and restore policies"),
            Command("events", "search the audit trail, or follow it as it grows"),
            Command("changes", "list who changed what, and when"),
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
    """Return the error about a command that does not exist; it names the most similar one."""
    near = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean `{near[0]}`? " if near else ""
    return (
        "usage: sluice COMMAND [ARGUMENT ...]\n"
        f"sluice: there is no command `{word}`; {hint}`sluice --help` lists all commands"
    )


_SIDECAR = (
    "aiohappyeyeballs", "aiohttp", "google_crc32c", "graphql", "httptools", "idna",
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
}


NEEDED_BY = {
    "control_api": "server",
    "sidecar": "sidecar",
    "deploy.commands.witness": "server",
    "deploy.kubernetes.admission": "server",
    "init": "server",
    "up": "demo",
}
"""The extra that a command needs, by the module that it becomes, by that module's package, or by
its own name. The others need the base alone."""


def missing_modules(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [name for name in MODULES[extra] if find_spec(name) is None]


def complaint(command: Command) -> str | None:
    """What to install before `command` can run; None if all is there."""
    module = command.becomes[0] if command.becomes else command.name
    extra = NEEDED_BY.get(module) or NEEDED_BY.get(module.partition(".")[0])
    if extra is None or not (missing := missing_modules(extra)):
        return None
    return (
        f"sluice: `sluice {command.name}` needs what the extra `{extra}` installs, and "
        f"{', '.join(f'`{name}`' for name in missing)} can't be found; "
        f"{how_to_install(extra)}"
    )
