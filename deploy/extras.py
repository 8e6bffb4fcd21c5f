"""What each extra of the distribution adds, and which of it is missing here. Imports none of it.

The tables repeat `pyproject.toml` in the names of modules, since an installed Sluice has no
`pyproject.toml`; a test compares them.
"""

from __future__ import annotations

from importlib.util import find_spec

from deploy.overview import Command
from policies.ground.distribution import how_to_install

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


# What a command runs, or its own name: the extra that it needs. The others need the base alone.
NEEDED_BY = {"control_api": "server", "sidecar": "sidecar", "init": "server", "up": "demo"}
BASE_ALONE = (
    "deploy.kubernetes.admission.manifests",
    "deploy.commands.policy",
    "deploy.commands.verify",
    "deploy.commands.report",
)
"""Modules that need no extra, although their package needs one."""


def missing_modules(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    return [name for name in MODULES[extra] if find_spec(name) is None]


def complaint(command: Command) -> str | None:
    """What to install before `command` can run; None if all is there."""
    module = command.becomes[0] if command.becomes else command.name
    runs = "" if module in BASE_ALONE else module.partition(".")[0]
    extra = NEEDED_BY.get(runs)
    if extra is None or not (missing := missing_modules(extra)):
        return None
    return (
        f"sluice: `sluice {command.name}` needs what the extra `{extra}` installs, and "
        f"{', '.join(f'`{name}`' for name in missing)} can't be found; "
        f"{how_to_install(extra)}"
    )
