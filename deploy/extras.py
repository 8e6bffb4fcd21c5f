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
